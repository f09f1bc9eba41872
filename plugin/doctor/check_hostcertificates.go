package doctor

import "time"

// hostCertificates finds Certificates of cert-manager that are not issued, or not renewed. It needs no access to the Secrets with the keys.
func hostCertificates(facts *Facts, limits Limits) []Finding {
	var found []Finding
	for _, certificate := range facts.Certificates {
		object := "Certificate " + certificate.Namespace + "/" + certificate.Name
		const next = "Look at it and its CertificateRequests: kubectl describe certificate, and the log of cert-manager"
		if finding, ok := overdue(facts, limits, certificate); ok {
			finding.Object, finding.NextStep = object, next
			found = append(found, finding)
			continue
		}
		if ready := certificate.Conditions.Get("Ready"); ready.Status == "False" && isLate(facts, ready.Since, limits) {
			found = append(found, Finding{Severity: SeverityError, Object: object, Message: withReason("is not issued", ready), Detail: ready.Message, NextStep: next})
		}
	}
	return found
}

// overdue returns the severity and the message about a Certificate that has expired, or that cert-manager has not renewed in time.
func overdue(facts *Facts, limits Limits, certificate HostCertificate) (Finding, bool) {
	if certificate.Renewal == nil || certificate.Certificate != nil && !certificate.Certificate.NotAfter.After(facts.ReadAt) {
		return expiry(facts, limits, certificate.Certificate)
	}
	due := certificate.Renewal.UTC().Format(time.RFC3339)
	return Finding{Severity: SeverityWarning, Message: "has not been renewed: that was due at " + due}, isLate(facts, *certificate.Renewal, limits)
}
