package pki

import (
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
)

// OperatorCertificate is the name of the client certificate of the operator for an installation.
func OperatorCertificate(root *operatorv1alpha1.RootShard) string { return root.Name + "-kcp-operator" }

// OperatorGroup is the group of that certificate.
const OperatorGroup = "system:kcp:admin"

// SelfSignedIssuer is the name of the issuer of self-signed CAs of an owner.
func SelfSignedIssuer(owner string) string { return owner + "-selfsigned" }

// RootShard returns the CAs of an installation and the certificates of its root shard and internal proxy. cache is the
// CacheServer that the root shard uses, or nil.
func RootShard(root *operatorv1alpha1.RootShard, cache *operatorv1alpha1.CacheServer) Objects {
	shard := desired.NewRootShard(root)
	out := authorities(root, shardOwner(shard))
	out.Append(Shard(shard, cache))
	out.Append(Proxy(desired.NewInternalProxy(root), root))
	sortCertificates(out.Certificates)
	return out
}

// authorities are the root CA, unless the user provides one, and the CAs below it.
func authorities(root *operatorv1alpha1.RootShard, s Owner) Objects {
	var out Objects
	rootName := desired.CAName(root, desired.RootCA)
	if desired.ProvidedCA(root) != "" {
		out.Issuers = append(out.Issuers, s.newCAIssuer(rootName, desired.CASecret(root, desired.RootCA)))
	} else {
		signer := localIssuerReference(SelfSignedIssuer(root.Name))
		if ref := root.Spec.Certificates.IssuerRef; ref != nil {
			signer = issuerReference(*ref)
		} else {
			out.Issuers = append(out.Issuers, s.NewSelfSignedIssuer(SelfSignedIssuer(root.Name)))
		}
		out.addAuthority(s, root, "root-ca", rootName, signer)
	}
	rootIssuer := localIssuerReference(rootName)
	for _, ca := range []desired.CA{desired.ServerCA, desired.ClientCA, desired.RequestHeaderCA, desired.ServiceAccountCA} {
		for _, name := range desired.ExistingCAs(root, ca) {
			out.addAuthority(s, root, string(ca), name, rootIssuer)
		}
	}
	for _, ca := range desired.RekeyableCAs() { // the keys of tokens are among the certificates of shards
		if pending := desired.PendingCA(root, ca); pending != "" {
			var made Objects
			made.addAuthority(s, root, string(ca), pending, rootIssuer)
			out.Append(Objects{Issuers: made.Issuers, Pending: made.Certificates})
		}
		out.setIssuer(s.newCAIssuer(desired.CAName(root, ca), desired.SigningCA(root, ca)))
	}
	return out
}

// setIssuer replaces the issuer of that name, or adds it. The Issuer without a suffix signs as the operator's own certificates are signed: Certificates of
// users name it.
func (o *Objects) setIssuer(issuer *certmanagerv1.Issuer) {
	for i, have := range o.Issuers {
		if have.Name == issuer.Name {
			o.Issuers[i] = issuer
			return
		}
	}
	o.Issuers = append(o.Issuers, issuer)
}

func (o *Objects) addAuthority(s Owner, root *operatorv1alpha1.RootShard, templateKey, name string, signer cmmeta.IssuerReference) {
	certificate, issuer := s.newAuthority(name, signer)
	if template, ok := root.Spec.CertificateTemplates[templateKey]; ok {
		applyTemplate(certificate, template)
	}
	o.Certificates = append(o.Certificates, certificate)
	o.Issuers = append(o.Issuers, issuer)
}

// NewSelfSignedIssuer returns a self-signed issuer.
func (o Owner) NewSelfSignedIssuer(name string) *certmanagerv1.Issuer {
	return o.newIssuer(name, certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}})
}

// RootShardTemplateKeys are the keys of a RootShard's certificateTemplates.
func RootShardTemplateKeys() []string {
	return []string{
		"cache-client", "client", "client-ca", "external-logical-cluster-admin", "kcp-operator", "logical-cluster-admin", "requestheader-client-ca",
		"root-ca", "server", "server-ca", "service-account", "service-account-ca", "virtual-workspaces",
	}
}

// localIssuerReference refers to an Issuer of the same namespace.
func localIssuerReference(name string) cmmeta.IssuerReference {
	return cmmeta.IssuerReference{Name: name, Kind: certmanagerv1.IssuerKind, Group: groupName}
}
