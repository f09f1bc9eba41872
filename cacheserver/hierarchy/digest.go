package hierarchy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// digest tells contents apart.
type digest [12]byte

// know reads what is to be known of an object.
func know(object *client.Object) (copied, error) {
	content, err := object.Unstructured()
	if err != nil {
		return copied{}, err
	}
	unmark(content)
	content.SetResourceVersion("")
	canonical, err := json.Marshal(content.Object)
	if err != nil {
		return copied{}, fmt.Errorf("encoding %s %s: %w", object.Kind, object.Key, err)
	}
	sum := sha256.Sum256(canonical)
	annotations := object.Meta.Annotations
	known := copied{exists: true, global: annotations[client.ReachAnnotation] == client.ReachGlobal, via: annotations[ViaAnnotation]}
	_, known.down = annotations[DownAnnotation]
	copy(known.digest[:], sum[:])
	return known, nil
}

// unmark removes the marks of caches.
func unmark(content *unstructured.Unstructured) {
	annotations := content.GetAnnotations()
	delete(annotations, ViaAnnotation)
	delete(annotations, DownAnnotation)
	content.SetAnnotations(annotations)
}

// mark returns the object as it is to stand in the other cache.
func mark(object *client.Object, annotation, value string) (*unstructured.Unstructured, error) {
	content, err := object.Unstructured()
	if err != nil {
		return nil, err
	}
	unmark(content)
	annotations := content.GetAnnotations()
	annotations[annotation] = value
	content.SetAnnotations(annotations)
	content.SetResourceVersion("")
	return content, nil
}
