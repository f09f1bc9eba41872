package shardserver

import (
	"strings"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/routes"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// installTokenIssuer serves what others verify service account tokens with: /.well-known/openid-configuration, and the
// public keys under /openid/v1/jwks. They are the same in every logical cluster, and read by its service accounts, and by
// whom else its policy allows that. An issuer that OpenID Connect does not allow has none, as in stock: it may be any
// string where nobody asks.
func (s *Server) installTokenIssuer() {
	accounts := s.options.Authentication.ServiceAccounts
	keys := accounts.JWKSURI
	if keys == "" {
		keys = strings.TrimSuffix(s.options.Shard.ExternalURL, "/") + serviceaccount.JWKSPath
	}
	metadata, err := serviceaccount.NewOpenIDMetadataProvider(accounts.Issuers[0], keys, "", s.config.tokenKeys)
	if err != nil {
		klog.ErrorS(err, "The issuer of service account tokens cannot be discovered", "issuer", accounts.Issuers[0])
		return
	}
	routes.NewOpenIDMetadataServer(metadata).Install(s.Generic.Handler.GoRestfulContainer)
}
