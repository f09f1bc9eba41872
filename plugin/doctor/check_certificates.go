package doctor

import (
	"fmt"
	"time"
)

const (
	// expiryWarning is the time before the expiry from which on a certificate is a finding: when the operator has those of servers renewed.
	// Of a short one it is a fifth of its validity: cert-manager renews when a third is left.
	expiryWarning  = 7 * 24 * time.Hour
	expiryFraction = 5
	// presentedWarning is that of certificates whose start is not known. It is that of the alert AtollCertificateExpires.
	presentedWarning = 24 * time.Hour
)

// certificates finds certificates that servers present, to their clients or to each other, and that expire soon.
func certificates(facts *Facts, limits Limits) []Finding {
	var found []Finding
	add := func(object, what string, certificate *Certificate, next string) {
		if finding, ok := expiry(facts, limits, certificate); ok {
			finding.Object, finding.Message, finding.NextStep = object, what+" "+finding.Message, next
			found = append(found, finding)
		}
	}
	add("kubeconfig", "its client certificate", facts.Credentials, "Get a new kubeconfig")
	add("kubeconfig of the shards", "its client certificate", facts.ShardCredentials, "Get a new kubeconfig")
	const renew = "Look at the Certificate of cert-manager: kubectl describe certificate. Servers read renewed files without a restart"
	for _, server := range facts.servers() {
		add(server.Name, "its serving certificate", server.Certificate, renew)
		for _, sample := range server.Metrics[metricCertificateExpiry] {
			flag := sample.Labels["flag"]
			if flag == servingFlag {
				continue // seen above
			}
			add(server.Name, "its certificate of --"+flag, &Certificate{NotAfter: time.Unix(int64(sample.Value), 0)}, renew)
		}
	}
	for _, shard := range facts.Shards {
		if virtual := shard.VirtualWorkspaces; virtual != nil && shard.VirtualWorkspaceURL != shard.BaseURL {
			add("virtual workspaces of shard "+shard.Name, "their serving certificate", virtual.Certificate, renew)
		}
	}
	return found
}

// servingFlag is the flag of the certificate that a server presents to its clients.
const servingFlag = "tls-cert-file"

// expiry returns the severity and the end of the message about a certificate that has expired, or expires soon.
func expiry(facts *Facts, limits Limits, certificate *Certificate) (Finding, bool) {
	if certificate == nil {
		return Finding{}, false
	}
	warning := presentedWarning
	if !certificate.NotBefore.IsZero() {
		warning = min(expiryWarning, certificate.NotAfter.Sub(certificate.NotBefore)/expiryFraction)
	}
	left := remaining(facts, certificate.NotAfter)
	switch {
	case left <= 0:
		return Finding{Severity: SeverityError, Message: "has expired at " + certificate.NotAfter.UTC().Format(time.RFC3339)}, true
	case left <= warning-limits.Grace:
		return Finding{Severity: SeverityWarning, Message: fmt.Sprintf("expires in %s and has not been renewed", left)}, true
	}
	return Finding{}, false
}
