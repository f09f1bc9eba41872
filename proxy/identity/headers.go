package identity

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// HeaderNames are the headers in which a backend reads the user.
type HeaderNames struct {
	User        string
	Group       string
	ExtraPrefix string
}

// DefaultHeaderNames are those of Kubernetes.
func DefaultHeaderNames() HeaderNames {
	return HeaderNames{User: "X-Remote-User", Group: "X-Remote-Group", ExtraPrefix: "X-Remote-Extra-"}
}

// reservedPrefix starts every header that Kubernetes servers by default read an identity from, the UID included.
const reservedPrefix = "x-remote-"

// WithoutIdentity returns the headers a client may send on: all that name no identity, whatever its spelling.
// Servers behind the backend may read '_' as '-', so both count as the same.
func (n HeaderNames) WithoutIdentity(in http.Header) http.Header {
	out := make(http.Header, len(in)+4)
	for name, values := range in {
		if !n.reserved(name) {
			out[name] = values
		}
	}
	return out
}

func (n HeaderNames) reserved(name string) bool {
	folded := fold(name)
	return strings.HasPrefix(folded, reservedPrefix) ||
		folded == fold(n.User) || folded == fold(n.Group) || strings.HasPrefix(folded, fold(n.ExtraPrefix))
}

func fold(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// Set writes the user into headers that hold no identity yet. The UID is not passed on.
func (n HeaderNames) Set(out http.Header, u user.Info) {
	out.Set(n.User, u.GetName())
	for _, group := range u.GetGroups() {
		out.Add(n.Group, group)
	}
	extra := u.GetExtra()
	keys := make([]string, 0, len(extra))
	for key := range extra {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for _, value := range extra[key] {
			out.Add(n.ExtraPrefix+escapeKey(key), value)
		}
	}
}

// escapeKey percent-encodes all bytes of an extra's key that must not stand in a header's name, and '%' itself.
// Header names do not keep their case, so the key is read back in lower case; Kubernetes keys are lower case.
func escapeKey(key string) string {
	const hex = "0123456789abcdef"
	var out strings.Builder
	for i := range len(key) {
		if c := key[i]; tokenByte(c) && c != '%' {
			out.WriteByte(c)
		} else {
			out.WriteByte('%')
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		}
	}
	return out.String()
}

// tokenByte tells whether RFC 9110 allows the byte in a header's name.
func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
