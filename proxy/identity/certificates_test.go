package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestCertificateCache(t *testing.T) {
	certificate := func(raw string) *x509.Certificate {
		return &x509.Certificate{Raw: []byte(raw), NotAfter: time.Now().Add(time.Hour)}
	}
	request := func(chain ...*x509.Certificate) *http.Request {
		return &http.Request{TLS: &tls.ConnectionState{PeerCertificates: chain}}
	}
	alice, bob, intermediate := certificate("alice"), certificate("bob"), certificate("intermediate")
	expiring := &x509.Certificate{Raw: []byte("old"), NotAfter: time.Now().Add(-time.Second)}

	for name, tc := range map[string]struct {
		requests []*http.Request
		// before runs between the requests.
		before   func(roots **x509.CertPool, refuse *bool)
		verified int
		user     string // of the last request; "" for an error
	}{
		"the same chain is verified once":                   {requests: []*http.Request{request(alice), request(alice)}, verified: 1, user: "alice"},
		"another certificate is verified":                   {requests: []*http.Request{request(alice), request(bob)}, verified: 2, user: "bob"},
		"another chain of the same certificate is verified": {requests: []*http.Request{request(alice), request(alice, intermediate)}, verified: 2, user: "alice"},
		"an expired certificate is verified again":          {requests: []*http.Request{request(expiring), request(expiring)}, verified: 2, user: "old"},
		"a chain is verified again with new roots": {requests: []*http.Request{request(alice), request(alice)}, verified: 2, user: "",
			before: func(roots **x509.CertPool, refuse *bool) { *roots, *refuse = x509.NewCertPool(), true }},
		"a failure is not cached": {requests: []*http.Request{request(bob), request(bob)}, verified: 2, user: "",
			before: func(_ **x509.CertPool, refuse *bool) { *refuse = true }},
	} {
		t.Run(name, func(t *testing.T) {
			roots, refuse, verified := x509.NewCertPool(), name == "a failure is not cached", 0
			cached := newCertificateCache(authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
				verified++
				if refuse {
					return nil, false, errors.New("refused")
				}
				return &authenticator.Response{User: &user.DefaultInfo{Name: string(req.TLS.PeerCertificates[0].Raw)}}, true, nil
			}), func() (x509.VerifyOptions, bool) { return x509.VerifyOptions{Roots: roots}, true })
			var got string
			for n, req := range tc.requests {
				if n == 1 && tc.before != nil {
					tc.before(&roots, &refuse)
				}
				got = ""
				if response, ok, err := cached.AuthenticateRequest(req); ok && err == nil {
					got = response.User.GetName()
				}
			}
			if verified != tc.verified || got != tc.user {
				t.Errorf("verified %d times, user %q; want %d, %q", verified, got, tc.verified, tc.user)
			}
		})
	}
}
