package backends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// HopsHeader counts how often servers forwarded a request from one virtual storage to another.
const HopsHeader = "X-Kcp-Virtual-Resource-Hops"

// The allow-lists of headers. Whatever names an identity (Authorization, Impersonate-*, X-Remote-*, cookies) is on none, and neither is
// what a browser would apply to the origin of this server.
var (
	requestHeaders = []string{"Accept", "Accept-Language", "Content-Type", "Content-Encoding", "If-Match", "If-None-Match", "User-Agent"}
	// upgradeHeaders are sent and returned with upgrades only.
	upgradeHeaders  = []string{protocolsHeader, "Connection", "Upgrade", "X-Stream-Protocol-Version", "Sec-Websocket-Version", "Sec-Websocket-Key", "Sec-Websocket-Accept", "Sec-Websocket-Extensions"}
	responseHeaders = []string{"Content-Type", "Content-Length", "Content-Encoding", "Cache-Control", "Etag", "Last-Modified", "Retry-After", "Warning"}
)

const (
	protocolsHeader = "Sec-Websocket-Protocol"
	// bearerProtocolPrefix starts a protocol of WebSocket that is a bearer token.
	bearerProtocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// Forward sends a request to target, which replaces its URL except for the query, on behalf of a user, and copies the response. handle
// writes the response if there is none.
func (c *Client) Forward(w http.ResponseWriter, req *http.Request, target *url.URL, caller user.Info, hops int, handle func(error)) {
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			query := p.Out.URL.RawQuery
			to := *target
			to.RawQuery = query
			p.Out.URL, p.Out.Host, p.Out.Trailer = &to, target.Host, nil
			p.Out.Header = newHeader(p.Out.Header, isUpgrade(p.Out), caller, hops)
		},
		Transport:     &guardedTransport{c.transport},
		FlushInterval: -1, // streams are sent at once
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(_ http.ResponseWriter, _ *http.Request, err error) { handle(err) },
	}
	proxy.ServeHTTP(w, req)
}

// isUpgrade reports whether a request asks for another protocol.
func isUpgrade(req *http.Request) bool { return req.Header.Get("Upgrade") != "" }

// newHeader returns the header of a request to a backend.
func newHeader(in http.Header, upgrade bool, caller user.Info, hops int) http.Header {
	out := pick(in, requestHeaders)
	if upgrade {
		maps.Copy(out, pick(in, upgradeHeaders))
		if protocols := protocolsWithoutToken(in.Values(protocolsHeader)); protocols != "" {
			out.Set(protocolsHeader, protocols)
		} else {
			out.Del(protocolsHeader)
		}
	}
	if out.Get("User-Agent") == "" {
		out.Set("User-Agent", userAgent) // else net/http names itself
	}
	transport.SetAuthProxyHeaders(&http.Request{Header: out}, caller.GetName(), "", groupsOf(caller), extraOf(caller))
	out.Set(HopsHeader, strconv.Itoa(hops))
	return out
}

// groupsOf returns the groups of a caller as a backend sees them. The group that may do everything on this shard does not reach others.
func groupsOf(caller user.Info) []string {
	return slices.DeleteFunc(slices.Clone(caller.GetGroups()), func(group string) bool { return group == user.SystemPrivilegedGroup })
}

// extraOf returns the extra of a caller without warrants, which grant permissions. Scopes, which take them away, stay.
func extraOf(caller user.Info) map[string][]string {
	extra := maps.Clone(caller.GetExtra())
	delete(extra, authorization.WarrantExtraKey)
	return extra
}

// protocolsWithoutToken returns the protocols of WebSocket that are no bearer token.
func protocolsWithoutToken(values []string) string {
	var protocols []string
	for _, protocol := range strings.Split(strings.Join(values, ","), ",") {
		if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(strings.ToLower(protocol), bearerProtocolPrefix) {
			protocols = append(protocols, protocol)
		}
	}
	return strings.Join(protocols, ", ")
}

func pick(from http.Header, names []string) http.Header {
	out := http.Header{}
	for _, name := range names {
		if values := from.Values(name); len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
	return out
}

// guardedTransport returns new responses, which have what is on the lists only. Trailers and interim responses (which a ReverseProxy
// copies with all their headers) are on none, and upgrades only if the client asked for one.
type guardedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *guardedTransport) RoundTrip(in *http.Request) (*http.Response, error) {
	// Values of the context, with which a ReverseProxy traces interim responses, are left out.
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(in.Context(), cancel)
	end := func() { stop(); cancel() }
	res, err := t.next.RoundTrip(in.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	body, err := checkResponse(res, isUpgrade(in))
	if err != nil {
		end()
		_ = res.Body.Close()
		return nil, err
	}
	out := &http.Response{
		StatusCode: res.StatusCode, ProtoMajor: 1, ProtoMinor: 1, Header: pick(res.Header, responseHeaders),
		ContentLength: res.ContentLength, Body: &endingBody{res.Body, end}, Request: in,
	}
	if body != nil {
		out.Header, out.Body = pick(res.Header, upgradeHeaders), &endingConnection{body, end}
	}
	return out, nil
}

var (
	errRedirect = errors.New("the backend redirects, which is not followed")
	errUpgrade  = errors.New("the backend switches protocols without being asked")
)

// checkResponse returns an error for a response that is not passed on, and the connection if the protocol was switched.
func checkResponse(res *http.Response, upgrade bool) (io.ReadWriteCloser, error) {
	switch code := res.StatusCode; {
	case code == http.StatusSwitchingProtocols:
		connection, ok := res.Body.(io.ReadWriteCloser)
		if !upgrade || !ok {
			return nil, errUpgrade
		}
		return connection, nil
	case code < http.StatusOK:
		return nil, fmt.Errorf("the backend answers with status %03d", code)
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest && code != http.StatusNotModified:
		return nil, errRedirect
	}
	return nil, nil
}

// endingBody releases the context of a response.
type endingBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// endingConnection is endingBody for a connection with another protocol.
type endingConnection struct {
	io.ReadWriteCloser
	end func()
}

// Close implements io.Closer.
func (c *endingConnection) Close() error {
	defer c.end()
	return c.ReadWriteCloser.Close()
}
