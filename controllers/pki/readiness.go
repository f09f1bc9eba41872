package pki

import (
	"fmt"
	"slices"
	"strings"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
)

// NotReady returns the certificates that are not issued as specified, with the status from cert-manager; sorted by
// name.
func NotReady(certificates []*certmanagerv1.Certificate) []string {
	var out []string
	for _, certificate := range certificates {
		if reason := notReadyReason(certificate); reason != "" {
			out = append(out, certificate.Name+": "+reason)
		}
	}
	slices.Sort(out)
	return out
}

func notReadyReason(certificate *certmanagerv1.Certificate) string {
	for _, condition := range certificate.Status.Conditions {
		if condition.Type != certmanagerv1.CertificateConditionReady {
			continue
		}
		if condition.Status == cmmeta.ConditionTrue && condition.ObservedGeneration >= certificate.Generation {
			return ""
		}
		if condition.Status == cmmeta.ConditionTrue {
			return "being reissued"
		}
		return strings.TrimSuffix(condition.Message, ".")
	}
	return "waiting for cert-manager"
}

// SummarizeNotReady returns the message about certificates that are not ready, with the first few by name.
func SummarizeNotReady(notReady []string, total int) string {
	const shown = 3
	first := notReady
	rest := ""
	if len(first) > shown {
		first, rest = first[:shown], fmt.Sprintf("; and %d more", len(notReady)-shown)
	}
	return fmt.Sprintf("%d of %d certificates are not issued yet: %s%s", len(notReady), total, strings.Join(first, "; "), rest)
}
