package pki

import (
	"cmp"
	"slices"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
)

// ProxyTemplateKeys are the keys of a proxy's certificateTemplates.
func ProxyTemplateKeys() []string { return []string{"kubeconfig", "requestheader", "server"} }

// Proxy returns the certificates of a front proxy or internal proxy.
func Proxy(p desired.Proxy, root *operatorv1alpha1.RootShard) Objects {
	s := Owner{Namespace: root.Namespace, References: p.OwnerReferences(), Labels: p.Labels(), SecretLabels: p.FileLabels()}
	return s.newLeaves(map[string]leaf{
		"server":        {issuer: desired.CAName(root, desired.ServerCA), usages: servingUsages, dnsNames: p.ServingNames()},
		"kubeconfig":    {issuer: desired.SigningCA(root, desired.ClientCA), commonName: p.CommonName(), organizations: []string{"system:masters"}, usages: clientUsages},
		"requestheader": {issuer: desired.SigningCA(root, desired.RequestHeaderCA), commonName: p.CommonName(), usages: clientUsages},
	}, p.Certificate, p.CertificateTemplates())
}

// KubeconfigCertificate is the name of a Kubeconfig's certificate.
func KubeconfigCertificate(kubeconfig *operatorv1alpha1.Kubeconfig) string {
	return "kubeconfig-cert-" + kubeconfig.Name
}

// KubeconfigGroup is the subject of the bindings of a Kubeconfig. Only its user is in this group: a later Kubeconfig of the
// same name has another UID.
func KubeconfigGroup(kubeconfig *operatorv1alpha1.Kubeconfig) string {
	return "kubeconfig:" + string(kubeconfig.UID)
}

// Kubeconfig returns the client certificate of a Kubeconfig. It has the labels of the object, and one with the name of the RootShard, by
// which the reconciler finds the installation after the target is deleted.
func Kubeconfig(kubeconfig *operatorv1alpha1.Kubeconfig, root *operatorv1alpha1.RootShard) *certmanagerv1.Certificate {
	s := Owner{
		Namespace:    kubeconfig.Namespace,
		References:   desired.NewOwnerReferences("Kubeconfig", kubeconfig),
		Labels:       mergeMissing(map[string]string{operatorv1alpha1.LabelRootShard: root.Name}, kubeconfig.Labels),
		SecretLabels: desired.KubeconfigLabels(kubeconfig, root),
	}
	certificate := s.newLeaf(leaf{
		name:          KubeconfigCertificate(kubeconfig),
		issuer:        desired.SigningCA(root, desired.ClientCA),
		commonName:    kubeconfig.Spec.Username,
		organizations: mergeSorted(kubeconfig.Spec.Groups, []string{KubeconfigGroup(kubeconfig)}),
		usages:        clientUsages,
	})
	// The default of cert-manager, to renew in the last third, fits every validity.
	certificate.Spec.Duration, certificate.Spec.RenewBefore = ptr.To(kubeconfig.Spec.Validity), nil
	if kubeconfig.Spec.CertificateTemplate != nil {
		applyTemplate(certificate, *kubeconfig.Spec.CertificateTemplate)
	}
	return certificate
}

// Etcd contains the names in the certificates of a managed etcd.
type Etcd struct {
	CA, Server, Peer, Client string   // names of the Certificates
	Hosts                    []string // of members and their Services
}

// EtcdPeerName is the common name of peers.
const EtcdPeerName = "etcd-peer"

// ManagedEtcd returns the certificates of an etcd. Its CA is self-signed: no other certificate of the installation
// gives access to the store.
func ManagedEtcd(owner desired.Owner, etcd Etcd) Objects {
	s := Owner{
		Namespace: owner.Namespace, References: owner.References,
		Labels: desired.AppLabels(desired.ComponentEtcd, owner.Name), SecretLabels: mergeMissing(desired.AppLabels(desired.ComponentEtcd, owner.Name), owner.SecretLabels),
	}
	var out Objects
	selfSigned := SelfSignedIssuer(owner.Name)
	ca, issuer := s.newAuthority(etcd.CA, localIssuerReference(selfSigned))
	ca.Spec.PrivateKey.Algorithm, ca.Spec.PrivateKey.Size = certmanagerv1.ECDSAKeyAlgorithm, 256
	out.Issuers = append(out.Issuers, s.NewSelfSignedIssuer(selfSigned), issuer)
	out.Certificates = append(out.Certificates, ca,
		// The gateway inside etcd is a client with the serving certificate.
		s.newLeaf(leaf{name: etcd.Server, issuer: etcd.CA, commonName: "etcd-server", usages: servingPeerUsages, dnsNames: etcd.Hosts, ecdsa: true}),
		s.newLeaf(leaf{name: etcd.Peer, issuer: etcd.CA, commonName: EtcdPeerName, usages: servingPeerUsages, dnsNames: etcd.Hosts, ecdsa: true}),
		s.newLeaf(leaf{name: etcd.Client, issuer: etcd.CA, commonName: "etcd-client", usages: clientUsages, ecdsa: true}),
	)
	return out
}

func sortCertificates(certificates []*certmanagerv1.Certificate) {
	slices.SortFunc(certificates, func(a, b *certmanagerv1.Certificate) int { return cmp.Compare(a.Name, b.Name) })
}
