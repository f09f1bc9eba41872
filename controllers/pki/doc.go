// Package pki computes the cert-manager objects of an installation: the tree of issuers below the root CA and every
// certificate of every component, with the changes that a spec's certificate templates make. It also merges bundles of
// CA certificates and reads what cert-manager reports. All of it is pure; the reconcilers apply what it returns.
package pki

import (
	"slices"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
)

// Objects are the cert-manager objects of one custom resource, in the order in which they are issued.
type Objects struct {
	Issuers      []*certmanagerv1.Issuer
	Certificates []*certmanagerv1.Certificate
}

// Append adds the objects of another part. An issuer that both need is there once, as the first part has it.
func (o *Objects) Append(more Objects) {
	for _, issuer := range more.Issuers {
		if !slices.ContainsFunc(o.Issuers, func(have *certmanagerv1.Issuer) bool { return have.Name == issuer.Name }) {
			o.Issuers = append(o.Issuers, issuer)
		}
	}
	o.Certificates = append(o.Certificates, more.Certificates...)
}
