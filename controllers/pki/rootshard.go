package pki

import (
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
)

// OperatorCertificate is the certificate by which the operator itself is known inside an installation.
func OperatorCertificate(root *operatorv1alpha1.RootShard) string { return root.Name + "-kcp-operator" }

// SelfSignedIssuer is the issuer of CAs that nobody else signs.
func SelfSignedIssuer(root *operatorv1alpha1.RootShard) string { return root.Name + "-selfsigned" }

// RootShardScope is the scope of everything made for a root shard.
func RootShardScope(root *operatorv1alpha1.RootShard) Scope {
	return Scope{
		Namespace: root.Namespace,
		Owner:     desired.OwnedBy("RootShard", root),
		Labels:    desired.AppLabels(desired.ComponentRootShard, root.Name),
		Secrets:   map[string]string{operatorv1alpha1.LabelRootShard: root.Name},
	}
}

// RootShard is the tree of CAs of an installation and the certificates of its root shard and internal proxy.
func RootShard(root *operatorv1alpha1.RootShard) Objects {
	s := RootShardScope(root)
	out := authorities(root, s)
	for key, l := range rootShardLeaves(root) {
		certificate := s.leaf(l)
		if template, ok := root.Spec.CertificateTemplates[key]; ok {
			applyTemplate(certificate, template)
		}
		out.Certificates = append(out.Certificates, certificate)
	}
	out.Append(Proxy(desired.InternalProxy(root), root))
	sortCertificates(out.Certificates)
	return out
}

// authorities are the root CA, unless the user brought one, and those below it.
func authorities(root *operatorv1alpha1.RootShard, s Scope) Objects {
	var out Objects
	rootName := desired.CAName(root, desired.RootCA)
	if desired.BroughtCA(root) != "" {
		out.Issuers = append(out.Issuers, s.caIssuer(rootName, desired.CASecret(root, desired.RootCA)))
	} else {
		signer := cmmeta.IssuerReference{Name: SelfSignedIssuer(root), Kind: certmanagerv1.IssuerKind, Group: groupName}
		if ref := root.Spec.Certificates.IssuerRef; ref != nil {
			signer = issuerReference(*ref)
		} else {
			out.Issuers = append(out.Issuers, s.SelfSigned(SelfSignedIssuer(root)))
		}
		out.addAuthority(s, root, "root-ca", rootName, signer)
	}
	below := cmmeta.IssuerReference{Name: rootName, Kind: certmanagerv1.IssuerKind, Group: groupName}
	for _, ca := range []desired.CA{desired.ServerCA, desired.ClientCA, desired.RequestHeaderCA, desired.ServiceAccountCA} {
		out.addAuthority(s, root, string(ca), desired.CAName(root, ca), below)
	}
	return out
}

func (o *Objects) addAuthority(s Scope, root *operatorv1alpha1.RootShard, templateKey, name string, signer cmmeta.IssuerReference) {
	certificate, issuer := s.authority(name, signer)
	if template, ok := root.Spec.CertificateTemplates[templateKey]; ok {
		applyTemplate(certificate, template)
	}
	o.Certificates = append(o.Certificates, certificate)
	o.Issuers = append(o.Issuers, issuer)
}

// SelfSigned is an issuer that lets every certificate sign itself.
func (s Scope) SelfSigned(name string) *certmanagerv1.Issuer {
	return s.issuer(name, certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}})
}

// rootShardLeaves are the certificates of the root shard by template key.
func rootShardLeaves(root *operatorv1alpha1.RootShard) map[string]leaf {
	ca := func(ca desired.CA) string { return desired.CAName(root, ca) }
	external := root.Spec.External.Hostname
	out := map[string]leaf{
		"server": {
			issuer: ca(desired.ServerCA), usages: servingUsages,
			dnsNames: []string{desired.RootShardHost(root), external, desired.URLHost(root.Spec.ShardBaseURL)},
		},
		"virtual-workspaces": {issuer: ca(desired.ServerCA), usages: serverOnlyUsages, dnsNames: []string{external}},
		// Tokens live as long as the key that signed them is known: a renewal must not change it.
		"service-account": {issuer: ca(desired.ServiceAccountCA), commonName: root.Name + "-service-account", usages: signingUsages, keepKey: true},
		"logical-cluster-admin": {
			issuer: ca(desired.ClientCA), commonName: "logical-cluster-admin",
			organizations: []string{"system:kcp:logical-cluster-admin"}, usages: clientUsages,
		},
		"external-logical-cluster-admin": {
			issuer: ca(desired.ClientCA), commonName: "external-logical-cluster-admin",
			organizations: []string{"system:kcp:external-logical-cluster-admin"}, usages: clientUsages,
		},
		"client":       {issuer: ca(desired.ClientCA), commonName: root.Name, organizations: []string{"system:masters"}, usages: clientUsages},
		"kcp-operator": {issuer: ca(desired.ClientCA), commonName: "system:kcp-operator", organizations: []string{"system:kcp:admin"}, usages: clientUsages},
	}
	for key, l := range out {
		l.name = root.Name + "-" + key
		out[key] = l
	}
	return out
}

// RootShardTemplateKeys are the keys of a RootShard's certificateTemplates.
func RootShardTemplateKeys() []string {
	return []string{
		"client", "client-ca", "external-logical-cluster-admin", "kcp-operator", "logical-cluster-admin", "requestheader-client-ca",
		"root-ca", "server", "server-ca", "service-account", "service-account-ca", "virtual-workspaces",
	}
}
