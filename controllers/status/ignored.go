package status

import (
	"slices"
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// SystemMasters is the group with all permissions. Shards accept it from client certificates, and never from a proxy.
const SystemMasters = "system:masters"

// IgnoredField is a field of a spec that is set and has no effect.
type IgnoredField struct {
	Field  string // its path below spec
	Advice string // why, and what to do
}

// SpecHonored returns the result about fields without effect.
func SpecHonored(fields []IgnoredField) Result {
	const condition = operatorv1alpha1.ConditionSpecHonored
	if len(fields) == 0 {
		return OK(condition, "AllFieldsHonored", "every field of the spec is in effect")
	}
	slices.SortFunc(fields, func(a, b IgnoredField) int { return strings.Compare(a.Field, b.Field) })
	parts := make([]string, len(fields))
	for i, field := range fields {
		parts[i] = "spec." + field.Field + ": " + field.Advice
	}
	return Warn(condition, "FieldsNotHonored", "these fields have no effect: %s", strings.Join(parts, "; "))
}

// UnknownTemplateKeys returns the keys of certificate templates that name no certificate.
func UnknownTemplateKeys(field string, templates operatorv1alpha1.CertificateTemplates, known []string) []IgnoredField {
	var out []IgnoredField
	for key := range templates {
		if !slices.Contains(known, key) {
			out = append(out, IgnoredField{field + "." + key, "there is no such certificate; valid keys are " + strings.Join(known, ", ")})
		}
	}
	return out
}

// IgnoredAuthFields returns the settings of authentication that no server uses.
func IgnoredAuthFields(auth *operatorv1alpha1.AuthSpec) []IgnoredField {
	if auth == nil || auth.OIDC == nil || auth.OIDC.ClientSecret == "" {
		return nil
	}
	return []IgnoredField{{"auth.oidc.clientSecret", "a server that checks tokens needs none; remove it"}}
}
