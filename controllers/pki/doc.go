// Package pki renders the cert-manager objects of an installation: the issuers below the root CA and the certificates of all components,
// with the certificate templates of specs applied. It also merges bundles of CA certificates and reads the status of certificates. All
// functions are pure; the reconcilers apply the returned objects.
package pki

import (
	"slices"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
)

// Objects are the cert-manager objects of one custom resource, in the order in which they are issued.
type Objects struct {
	Issuers      []*certmanagerv1.Issuer
	Certificates []*certmanagerv1.Certificate
	Pending      []*certmanagerv1.Certificate // that nothing waits for
}

// Secrets returns the names of the Secrets that cert-manager creates for the certificates.
func (o Objects) Secrets() []string {
	var out []string
	for _, certificate := range o.Certificates {
		out = append(out, certificate.Spec.SecretName)
	}
	return out
}

// Append adds objects. It does not add existing issuers again.
func (o *Objects) Append(more Objects) {
	for _, issuer := range more.Issuers {
		if !slices.ContainsFunc(o.Issuers, func(have *certmanagerv1.Issuer) bool { return have.Name == issuer.Name }) {
			o.Issuers = append(o.Issuers, issuer)
		}
	}
	o.Certificates = append(o.Certificates, more.Certificates...)
	o.Pending = append(o.Pending, more.Pending...)
}
