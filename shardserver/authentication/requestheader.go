package authentication

import (
	"crypto/x509"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// fromProxy believes the identity headers of a client certificate that the request header CA signed for an allowed
// name, but for the groups that no header may yield. The front proxy drops these already; a shard does not rely on
// it, so that a proxy's certificate alone gives no power over the shard itself.
func fromProxy(config *authenticatorfactory.RequestHeaderConfig) authenticator.Request {
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
		response.User = withoutDirectGroups(response.User)
		return response, true, nil
	})
}

// exceptOfProxy skips the certificate authenticator for certificates that the request header CA signed. A front proxy
// forwards a request without a credential as it came: its certificate then vouches for the connection and is nobody's
// identity, so that the request is anonymous rather than wrong.
func exceptOfProxy(certificates authenticator.Request, config *authenticatorfactory.RequestHeaderConfig) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := certificates.AuthenticateRequest(req)
		if err != nil && ofProxy(req, config) {
			return nil, false, nil
		}
		return response, ok, err
	})
}

func ofProxy(req *http.Request, config *authenticatorfactory.RequestHeaderConfig) bool {
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

// withoutDirectGroups removes the groups that mean something only for clients that speak to the shard directly.
func withoutDirectGroups(u user.Info) user.Info {
	return &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: slices.DeleteFunc(slices.Clone(u.GetGroups()), direct),
		Extra:  u.GetExtra(),
	}
}

func direct(group string) bool {
	return group == authorization.GroupMasters ||
		group == authorization.GroupLogicalClusterAdmin ||
		group == authorization.GroupShard ||
		group == authorization.GroupCache ||
		strings.HasPrefix(group, authorization.InitializerGroupPrefix) ||
		strings.HasPrefix(group, authorization.TerminatorGroupPrefix)
}
