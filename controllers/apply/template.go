package apply

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TemplateHash hashes the fields that a pod template sets.
func TemplateHash(template *corev1.PodTemplateSpec) (string, error) {
	intent, err := newIntent(&corev1.PodTemplate{Template: *template})
	if err != nil {
		return "", err
	}
	return hashIntent(intent)
}

// TemplateCovers reports whether every field that a pod template sets has its value in the live one.
func TemplateCovers(live, template *corev1.PodTemplateSpec) (bool, error) {
	intent, err := newIntent(&corev1.PodTemplate{Template: *template})
	if err != nil {
		return false, err
	}
	running, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, err
	}
	return covers(running, intent.Object["template"]), nil
}
