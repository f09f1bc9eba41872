package cacheserver

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/validation"
)

// maxNameLength keeps the names of Services, which are made from it, within 63 characters.
const maxNameLength = 63 - len("-cache-server")

// validateSpec rejects invalid specs, and reports the ignored fields of valid ones.
func validateSpec(cache *operatorv1alpha1.CacheServer) status.Result {
	if mistakes := status.Join(validateName(cache), validateParent(cache.Spec.Parent), validation.Etcd(cache.Spec.Etcd)); mistakes.Type != "" {
		return mistakes
	}
	return status.SpecHonored(ignoredFields(cache))
}

func validateName(cache *operatorv1alpha1.CacheServer) status.Result {
	const condition = operatorv1alpha1.ConditionSpecHonored
	switch {
	case len(cache.Name) > maxNameLength:
		return status.Stall(condition, "InvalidName", "the name has %d characters and may have %d, because names of Services are made from it: recreate the CacheServer under a shorter name", len(cache.Name), maxNameLength)
	case strings.Contains(cache.Name, "."):
		return status.Stall(condition, "InvalidName", "the name contains a dot, and names of Services made from it must not: recreate the CacheServer under a name without dots")
	}
	return status.Result{}
}

func validateParent(parent *operatorv1alpha1.CacheParent) status.Result {
	if parent == nil {
		return status.Result{}
	}
	var mistakes []status.Result
	for _, named := range []struct {
		field string
		ref   *corev1.LocalObjectReference
	}{{"cacheServerRef", parent.CacheServerRef}, {"rootShardRef", parent.RootShardRef}, {"kubeconfigSecretRef", parent.KubeconfigSecretRef}} {
		if named.ref != nil && named.ref.Name == "" {
			mistakes = append(mistakes, status.Stall(operatorv1alpha1.ConditionSpecHonored, "InvalidSpec", "parent.%s.name is empty: name the cache above this one, or remove parent", named.field))
		}
	}
	return status.Join(mistakes...)
}

// ignoredFields returns the fields of a CacheServer that have no effect.
func ignoredFields(cache *operatorv1alpha1.CacheServer) []status.IgnoredField {
	spec := cache.Spec
	out := validation.IgnoredCertificateFields(spec.Certificates, spec.CertificateTemplates)
	if spec.Etcd == nil && spec.Replicas != nil && *spec.Replicas > 1 {
		out = append(out, status.IgnoredField{Field: "replicas", Advice: "the embedded store belongs to one pod; set etcd for more"})
	}
	if spec.CacheName != "" && spec.Parent == nil {
		out = append(out, status.IgnoredField{Field: "cacheName", Advice: "it is for the cache above, and there is none; set parent or remove it"})
	}
	return append(out, status.UnknownTemplateKeys("certificateTemplates", spec.CertificateTemplates, pki.CacheServerTemplateKeys())...)
}
