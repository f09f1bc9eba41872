package doctor

// hostCertificates finds Certificates of cert-manager that are not issued, or not renewed. It needs no access to the Secrets with the keys.
func hostCertificates(facts *Facts, limits Limits) []Finding {
	var found []Finding
	for _, certificate := range facts.Certificates {
		object := "Certificate " + certificate.Namespace + "/" + certificate.Name
		const next = "Look at it and its CertificateRequests: kubectl describe certificate, and the log of cert-manager"
		if finding, ok := expiry(facts, certificate.Certificate); ok {
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
