package pki

import (
	"maps"
	"net"
	"slices"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

const groupName = "cert-manager.io"

// applyTemplate applies a template to a certificate. It merges maps, in which keys of the operator keep their value; it merges and sorts
// lists, and replaces other fields. The common name and the usages are fixed, because servers authorize the certificate by them.
func applyTemplate(certificate *certmanagerv1.Certificate, template operatorv1alpha1.CertificateTemplate) {
	if m := template.Metadata; m != nil {
		certificate.Annotations = mergeMissing(certificate.Annotations, m.Annotations)
		certificate.Labels = mergeMissing(certificate.Labels, m.Labels)
	}
	t := template.Spec
	if t == nil {
		return
	}
	spec := &certificate.Spec
	switch {
	case t.IssuerRef != nil && len(t.DNSNames) > 0:
		// Another issuer, often a public one, signs only the names and addresses in the template.
		spec.DNSNames, spec.IPAddresses = mergeSorted(t.DNSNames), mergeSorted(t.IPAddresses)
	default:
		spec.DNSNames, spec.IPAddresses = mergeSorted(spec.DNSNames, t.DNSNames), mergeSorted(spec.IPAddresses, t.IPAddresses)
	}
	if t.IssuerRef != nil {
		spec.IssuerRef = issuerReference(*t.IssuerRef)
	}
	if t.Duration != nil {
		spec.Duration = t.Duration
	}
	if t.RenewBefore != nil {
		spec.RenewBefore = t.RenewBefore
	}
	if s := t.SecretTemplate; s != nil {
		if spec.SecretTemplate == nil {
			spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{}
		}
		spec.SecretTemplate.Annotations = mergeMissing(spec.SecretTemplate.Annotations, s.Annotations)
		spec.SecretTemplate.Labels = mergeMissing(spec.SecretTemplate.Labels, s.Labels)
	}
	applySubject(spec, t.Subject)
	applyPrivateKey(spec, t.PrivateKey)
}

func applySubject(spec *certmanagerv1.CertificateSpec, t *operatorv1alpha1.CertificateSubject) {
	if t == nil {
		return
	}
	if spec.Subject == nil {
		spec.Subject = &certmanagerv1.X509Subject{}
	}
	s := spec.Subject
	s.Organizations = mergeSorted(s.Organizations, t.Organizations)
	s.Countries = mergeSorted(s.Countries, t.Countries)
	s.OrganizationalUnits = mergeSorted(s.OrganizationalUnits, t.OrganizationalUnits)
	s.Localities = mergeSorted(s.Localities, t.Localities)
	s.Provinces = mergeSorted(s.Provinces, t.Provinces)
	s.StreetAddresses = mergeSorted(s.StreetAddresses, t.StreetAddresses)
	s.PostalCodes = mergeSorted(s.PostalCodes, t.PostalCodes)
	if t.SerialNumber != "" {
		s.SerialNumber = t.SerialNumber
	}
}

func applyPrivateKey(spec *certmanagerv1.CertificateSpec, t *operatorv1alpha1.CertificatePrivateKey) {
	if t == nil {
		return
	}
	key := spec.PrivateKey
	if t.RotationPolicy != "" {
		key.RotationPolicy = certmanagerv1.PrivateKeyRotationPolicy(t.RotationPolicy)
	}
	if t.Encoding != "" {
		key.Encoding = certmanagerv1.PrivateKeyEncoding(t.Encoding)
	}
	if t.Algorithm != "" && certmanagerv1.PrivateKeyAlgorithm(t.Algorithm) != key.Algorithm {
		// The size is for the default algorithm; for another one, cert-manager chooses the size.
		key.Algorithm, key.Size = certmanagerv1.PrivateKeyAlgorithm(t.Algorithm), 0
	}
	if t.Size != 0 {
		key.Size = t.Size
	}
}

func issuerReference(ref operatorv1alpha1.IssuerReference) cmmeta.IssuerReference {
	return cmmeta.IssuerReference{Name: ref.Name, Kind: ref.Kind, Group: ref.Group}
}

// mergeMissing adds the entries of more whose keys are missing in base.
func mergeMissing(base, more map[string]string) map[string]string {
	if len(more) == 0 {
		return base
	}
	out := maps.Clone(more)
	maps.Copy(out, base)
	return out
}

// mergeSorted merges lists: sorted, without duplicates and empty elements. It is nil if there are none.
func mergeSorted(lists ...[]string) []string {
	var out []string
	for _, element := range slices.Sorted(slices.Values(slices.Concat(lists...))) {
		if element != "" && (len(out) == 0 || out[len(out)-1] != element) {
			out = append(out, element)
		}
	}
	return out
}

// splitNames separates DNS names from IP addresses, which are different fields of a certificate.
func splitNames(hosts []string) (names, addresses []string) {
	for _, host := range mergeSorted(hosts) {
		if net.ParseIP(host) != nil {
			addresses = append(addresses, host)
		} else {
			names = append(names, host)
		}
	}
	return names, addresses
}
