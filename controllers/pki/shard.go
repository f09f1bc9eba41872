package pki

import (
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
)

// ShardTemplateKeys are the keys of a Shard's certificateTemplates.
func ShardTemplateKeys() []string {
	return []string{
		desired.CacheClient, "client", "external-logical-cluster-admin", "logical-cluster-admin", "mounts-proxy", "server", "service-account", "virtual-workspaces",
	}
}

// shardGroup is the group of shards: at the root shard a member may join the installation and write the Shard object of its name, in a
// cache server it may read all objects and write objects under its own name.
const shardGroup = "system:kcp:shard"

// shardUser is the user name of a shard in certificates of shardGroup.
func shardUser(shard desired.Shard) string { return shardGroup + ":" + shard.ShardName() }

// Shard returns the certificates of the server of a shard. cache is the CacheServer that it uses, or nil.
func Shard(shard desired.Shard, cache *operatorv1alpha1.CacheServer) Objects {
	s := shardOwner(shard)
	leaves := secondaryShardLeaves(shard)
	if shard.IsRoot() {
		leaves = rootShardLeaves(shard)
	}
	if cache != nil {
		leaves[desired.CacheClient] = cacheClientLeaf(cache, shardUser(shard))
	}
	out := s.newLeaves(leaves, shard.Certificate, shard.Spec().CertificateTemplates)
	out.Certificates = append(out.Certificates, tokenKeys(shard)...)
	sortCertificates(out.Certificates)
	if pending := desired.PendingTokenKey(shard.Root(), shard.Name()); pending != nil {
		out.Pending = append(out.Pending, tokenKey(shard, *pending))
	}
	return out
}

// tokenKeys are the certificates of the keys of a shard that sign tokens.
func tokenKeys(shard desired.Shard) []*certmanagerv1.Certificate {
	var out []*certmanagerv1.Certificate
	for _, key := range desired.TokenKeys(shard.Root(), shard.Name()) {
		out = append(out, tokenKey(shard, key))
	}
	return out
}

// tokenKey is the certificate of a key that signs tokens. Tokens are valid as long as their key is accepted, so renewals keep the key.
func tokenKey(shard desired.Shard, key desired.TokenKey) *certmanagerv1.Certificate {
	out := shardOwner(shard).newLeaf(leaf{
		name: key.Secret(), issuer: desired.CAName(shard.Root(), desired.ServiceAccountCA), commonName: key.Secret(),
		usages: signingUsages, keepKey: true,
	})
	if template, ok := shard.Spec().CertificateTemplates["service-account"]; ok {
		applyTemplate(out, template)
	}
	return out
}

// cacheClientLeaf is the client certificate of a server for a cache server.
func cacheClientLeaf(cache *operatorv1alpha1.CacheServer, user string) leaf {
	return leaf{issuer: desired.NewCacheServer(cache).CA(), commonName: user, organizations: []string{shardGroup}, usages: clientUsages}
}

func shardOwner(shard desired.Shard) Owner {
	return Owner{Namespace: shard.Namespace(), References: shard.OwnerReferences(), Labels: shard.Labels(), SecretLabels: shard.FileLabels()}
}

// newLeaves returns the certificates of leaves by template key, with the templates applied.
func (o Owner) newLeaves(leaves map[string]leaf, name func(key string) string, templates operatorv1alpha1.CertificateTemplates) Objects {
	var out Objects
	for key, l := range leaves {
		l.name = name(key)
		certificate := o.newLeaf(l)
		if template, ok := templates[key]; ok {
			applyTemplate(certificate, template)
		}
		out.Certificates = append(out.Certificates, certificate)
	}
	sortCertificates(out.Certificates)
	return out
}

// rootShardLeaves are the certificates of a root shard by template key, with the client certificate of the operator. Of the client
// certificates of shards only "client" is mounted; the others exist for programs that expect them.
func rootShardLeaves(shard desired.Shard) map[string]leaf {
	root := shard.Root()
	ca := func(ca desired.CA) string { return desired.SigningCA(root, ca) }
	external := root.Spec.External.Hostname
	return map[string]leaf{
		"server": {
			issuer: ca(desired.ServerCA), usages: servingUsages,
			dnsNames: []string{shard.Host(), external, desired.URLHost(root.Spec.ShardBaseURL)},
		},
		"virtual-workspaces":             {issuer: ca(desired.ServerCA), usages: serverOnlyUsages, dnsNames: []string{external}},
		"logical-cluster-admin":          adminLeaf(shard, "logical-cluster-admin", ""),
		"external-logical-cluster-admin": adminLeaf(shard, "external-logical-cluster-admin", ""),
		"client":                         shardLeaf(shard),
		"kcp-operator":                   {issuer: ca(desired.ClientCA), commonName: "system:kcp-operator", organizations: []string{OperatorGroup}, usages: clientUsages},
	}
}

// secondaryShardLeaves are the certificates of a shard that is not the root shard, by template key.
func secondaryShardLeaves(shard desired.Shard) map[string]leaf {
	root, suffix := shard.Root(), "-shard-"+shard.Name()
	ca := func(ca desired.CA) string { return desired.SigningCA(root, ca) }
	return map[string]leaf{
		"server": {
			issuer: ca(desired.ServerCA), usages: servingUsages,
			dnsNames: []string{"localhost", shard.Host(), desired.URLHost(shard.Spec().ShardBaseURL)},
		},
		"virtual-workspaces":             {issuer: ca(desired.ServerCA), usages: serverOnlyUsages, dnsNames: []string{shard.Host()}},
		"logical-cluster-admin":          adminLeaf(shard, "logical-cluster-admin", suffix),
		"external-logical-cluster-admin": adminLeaf(shard, "external-logical-cluster-admin", suffix),
		"client":                         shardLeaf(shard),
		"mounts-proxy":                   {issuer: ca(desired.RequestHeaderCA), commonName: "kcp-mounts-proxy", usages: clientUsages},
	}
}

func shardLeaf(shard desired.Shard) leaf {
	return leaf{
		issuer: desired.SigningCA(shard.Root(), desired.ClientCA), commonName: shardUser(shard), organizations: []string{shardGroup}, usages: clientUsages,
	}
}

func adminLeaf(shard desired.Shard, role, suffix string) leaf {
	return leaf{
		issuer: desired.SigningCA(shard.Root(), desired.ClientCA), commonName: role + suffix,
		organizations: []string{"system:kcp:" + role}, usages: clientUsages,
	}
}

// VirtualWorkspaceTemplateKeys are the keys of a VirtualWorkspace's certificateTemplates.
func VirtualWorkspaceTemplateKeys() []string {
	return []string{desired.CacheClient, "client", "server"}
}

// VirtualWorkspace returns the certificates of a virtual workspace server. cache is the CacheServer of its target, or
// nil.
func VirtualWorkspace(v desired.VirtualWorkspace, virtualWorkspace *operatorv1alpha1.VirtualWorkspace, cache *operatorv1alpha1.CacheServer) Objects {
	root := v.Root()
	s := Owner{Namespace: virtualWorkspace.Namespace, References: v.OwnerReferences(), Labels: v.Labels(), SecretLabels: v.FileLabels()}
	leaves := map[string]leaf{
		"server": {
			issuer: desired.CAName(root, desired.ServerCA), usages: servingUsages,
			dnsNames: []string{"localhost", v.Host(), virtualWorkspace.Spec.External.Hostname},
		},
		"client": {
			issuer: desired.SigningCA(root, desired.ClientCA), commonName: v.Server(), organizations: []string{"system:masters"}, usages: clientUsages,
		},
	}
	if cache != nil {
		// A client that is not a shard only reads.
		leaves[desired.CacheClient] = cacheClientLeaf(cache, "system:kcp:virtual-workspace:"+v.Name())
	}
	out := s.newLeaves(leaves, v.Certificate, virtualWorkspace.Spec.CertificateTemplates)
	for _, certificate := range out.Certificates {
		if certificate.Name == v.Certificate("client") {
			certificate.Labels = mergeMissing(certificate.Labels, virtualWorkspace.Labels)
		}
	}
	return out
}

// CacheServerTemplateKeys are the keys of a CacheServer's certificateTemplates.
func CacheServerTemplateKeys() []string {
	return []string{"client", desired.ParentClient, "root-ca", "server"}
}

// cacheGroup is the group of caches that publish the objects of their shards to the cache above. Proxies drop it.
const cacheGroup = "system:kcp:cache"

// CacheServer returns the certificate authority of a cache server and the certificates below it. The authority also signs the
// certificates of its clients, so that no other certificate of an installation grants access. parent is the cache above it, or nil.
func CacheServer(cache *operatorv1alpha1.CacheServer, parent *desired.CacheParent) Objects {
	c := desired.NewCacheServer(cache)
	s := Owner{Namespace: cache.Namespace, References: c.OwnerReferences(), Labels: c.Labels(), SecretLabels: c.FileLabels()}
	var out Objects
	if c.ProvidedCA() != "" {
		out.Issuers = append(out.Issuers, s.newCAIssuer(c.CA(), c.ProvidedCA()))
	} else {
		signer := localIssuerReference(SelfSignedIssuer(cache.Name))
		if ref := cache.Spec.Certificates.IssuerRef; ref != nil {
			signer = issuerReference(*ref)
		} else {
			out.Issuers = append(out.Issuers, s.NewSelfSignedIssuer(SelfSignedIssuer(cache.Name)))
		}
		certificate, issuer := s.newAuthority(c.CA(), signer)
		if template, ok := cache.Spec.CertificateTemplates["root-ca"]; ok {
			applyTemplate(certificate, template)
		}
		out.Certificates, out.Issuers = append(out.Certificates, certificate), append(out.Issuers, issuer)
	}
	leaves := map[string]leaf{"server": {issuer: c.CA(), usages: servingUsages, dnsNames: []string{"localhost", c.Host()}}}
	if parent != nil && parent.Issuer != "" {
		leaves[desired.ParentClient] = leaf{
			issuer: parent.Issuer, commonName: cacheGroup + ":" + c.CacheName(), organizations: []string{cacheGroup}, usages: clientUsages,
		}
	}
	out.Append(s.newLeaves(leaves, c.Certificate, cache.Spec.CertificateTemplates))
	client := s.newLeaf(leaf{
		name: c.Certificate("client-certificate"), issuer: c.CA(), commonName: "cache-client", organizations: []string{"system:masters"},
		usages: append([]certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth}, signingUsages...),
	})
	if template, ok := cache.Spec.CertificateTemplates["client"]; ok {
		applyTemplate(client, template)
	}
	out.Certificates = append(out.Certificates, client)
	sortCertificates(out.Certificates)
	return out
}
