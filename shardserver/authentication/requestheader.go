package authentication

import (
	"crypto/x509"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// FrontProxyAnnotation is an annotation of the audit events of requests that a front proxy sent, according to its client certificate.
const FrontProxyAnnotation = "audit.kcp.io/front-proxy"

// newRequestHeaderAuthenticator authenticates the identity headers of clients whose certificate the request header CA
// signed for an allowed name, without the groups that headers must not yield. The front proxy removes these already;
// the shard does not rely on that, so that a proxy's certificate alone gives no privileges on the shard itself.
func newRequestHeaderAuthenticator(config *authenticatorfactory.RequestHeaderConfig) authenticator.Request {
	stock := headerrequest.NewDynamicVerifyOptionsSecure(
		config.CAContentProvider.VerifyOptions,
		config.AllowedClientNames,
		config.UsernameHeaders,
		config.UIDHeaders,
		config.GroupHeaders,
		config.ExtraHeaderPrefixes,
	)
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := stock.AuthenticateRequest(req)
		if err != nil || !ok {
			return nil, false, err
		}
		audit.AddAuditAnnotation(req.Context(), FrontProxyAnnotation, "true")
		response.User = removeDirectGroups(response.User)
		return response, true, nil
	})
}

// ignoreProxyCertificates ignores errors of the certificate authenticator for certificates that the request header CA
// signed. A front proxy forwards a request without credentials unchanged: its certificate then authenticates the
// connection and is not the identity of the request, which is anonymous rather than invalid.
func ignoreProxyCertificates(certificates authenticator.Request, config *authenticatorfactory.RequestHeaderConfig) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := certificates.AuthenticateRequest(req)
		if err != nil && isProxyCertificate(req, config) {
			if names := config.AllowedClientNames.Value(); len(names) == 0 || slices.Contains(names, req.TLS.PeerCertificates[0].Subject.CommonName) {
				audit.AddAuditAnnotation(req.Context(), FrontProxyAnnotation, "true")
			}
			return nil, false, nil
		}
		return response, ok, err
	})
}

func isProxyCertificate(req *http.Request, config *authenticatorfactory.RequestHeaderConfig) bool {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return false
	}
	options, ok := config.CAContentProvider.VerifyOptions()
	if !ok {
		return false
	}
	options.Intermediates = x509.NewCertPool()
	for _, intermediate := range req.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	_, err := req.TLS.PeerCertificates[0].Verify(options)
	return err == nil
}

// removeDirectGroups removes the groups that are accepted on direct connections to the shard only.
func removeDirectGroups(u user.Info) user.Info {
	return &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: slices.DeleteFunc(slices.Clone(u.GetGroups()), isDirectGroup),
		Extra:  u.GetExtra(),
	}
}

func isDirectGroup(group string) bool {
	return group == authorization.GroupMasters ||
		group == authorization.GroupLogicalClusterAdmin ||
		group == authorization.GroupShard ||
		group == authorization.GroupCache ||
		strings.HasPrefix(group, authorization.InitializerGroupPrefix) ||
		strings.HasPrefix(group, authorization.TerminatorGroupPrefix)
}
