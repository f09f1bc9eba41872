package hierarchy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// digest identifies content.
type digest [12]byte

// summarize returns the summary of an object.
func summarize(object *client.Object) (summary, error) {
	content, err := object.Unstructured()
	if err != nil {
		return summary{}, err
	}
	removeAnnotations(content)
	content.SetResourceVersion("")
	canonical, err := json.Marshal(content.Object)
	if err != nil {
		return summary{}, fmt.Errorf("encoding %s %s: %w", object.Kind, object.Key, err)
	}
	sum := sha256.Sum256(canonical)
	annotations := object.Meta.Annotations
	known := summary{exists: true, global: object.HasGlobalReach(), via: annotations[ViaAnnotation]}
	_, known.down = annotations[DownAnnotation]
	copy(known.digest[:], sum[:])
	return known, nil
}

// removeAnnotations removes the annotations of caches.
func removeAnnotations(content *unstructured.Unstructured) {
	annotations := content.GetAnnotations()
	delete(annotations, ViaAnnotation)
	delete(annotations, DownAnnotation)
	content.SetAnnotations(annotations)
}

// annotate returns the copy of an object for the other cache.
func annotate(object *client.Object, annotation, value string) (*unstructured.Unstructured, error) {
	content, err := object.Unstructured()
	if err != nil {
		return nil, err
	}
	removeAnnotations(content)
	annotations := content.GetAnnotations()
	annotations[annotation] = value
	content.SetAnnotations(annotations)
	content.SetResourceVersion("")
	return content, nil
}
