package status

import (
	"slices"
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Masters is the group that may do everything. Shards believe it of client certificates, and never of a proxy.
const Masters = "system:masters"

// Unheeded is a field of a spec that is set and not acted on.
type Unheeded struct {
	Field  string // its path below spec
	Advice string // why, and what to do
}

// SpecHonored is the finding about fields that are not acted on.
func SpecHonored(fields []Unheeded) Finding {
	const condition = operatorv1alpha1.ConditionSpecHonored
	if len(fields) == 0 {
		return OK(condition, "AllFieldsHonored", "every field of the spec is acted on")
	}
	slices.SortFunc(fields, func(a, b Unheeded) int { return strings.Compare(a.Field, b.Field) })
	parts := make([]string, len(fields))
	for i, field := range fields {
		parts[i] = "spec." + field.Field + ": " + field.Advice
	}
	return Tell(condition, "FieldsNotHonored", "these fields have no effect: %s", strings.Join(parts, "; "))
}

// UnheededKeys are the keys of a map of certificate templates that name no certificate.
func UnheededKeys(field string, templates operatorv1alpha1.CertificateTemplates, known []string) []Unheeded {
	var out []Unheeded
	for key := range templates {
		if !slices.Contains(known, key) {
			out = append(out, Unheeded{field + "." + key, "there is no such certificate; known are " + strings.Join(known, ", ")})
		}
	}
	return out
}

// UnheededAuth are the settings of authentication that no server acts on.
func UnheededAuth(auth *operatorv1alpha1.AuthSpec) []Unheeded {
	if auth == nil || auth.OIDC == nil || auth.OIDC.ClientSecret == "" {
		return nil
	}
	return []Unheeded{{"auth.oidc.clientSecret", "a server that checks tokens needs none; remove it"}}
}
