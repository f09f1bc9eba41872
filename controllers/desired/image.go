package desired

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Image is a container image by repository and tag. A digest is the tag of a repository that ends in "@sha256".
type Image struct{ Repository, Tag string }

// ParseImage parses "repository:tag" or "repository@sha256:digest".
func ParseImage(s string) (Image, error) {
	colon := strings.LastIndex(s, ":")
	if colon <= strings.LastIndex(s, "/") || colon == len(s)-1 {
		return Image{}, fmt.Errorf("image %q: want repository:tag", s)
	}
	return Image{Repository: s[:colon], Tag: s[colon+1:]}, nil
}

// String is the image reference of a container.
func (i Image) String() string { return i.Repository + ":" + i.Tag }

// With returns the image with the fields that a spec sets.
func (i Image) With(spec *operatorv1alpha1.ImageSpec) Image {
	if spec == nil {
		return i
	}
	if spec.Repository != "" {
		i.Repository = spec.Repository
	}
	if spec.Tag != "" {
		i.Tag = spec.Tag
	}
	return i
}

// pullSecrets are the pull secrets of the image and of a template, each once.
func pullSecrets(spec *operatorv1alpha1.ImageSpec, more []corev1.LocalObjectReference) []corev1.LocalObjectReference {
	var all, out []corev1.LocalObjectReference
	if spec != nil {
		all = append(all, spec.ImagePullSecrets...)
	}
	seen := map[string]bool{}
	for _, ref := range append(all, more...) {
		if !seen[ref.Name] {
			seen[ref.Name] = true
			out = append(out, ref)
		}
	}
	return out
}
