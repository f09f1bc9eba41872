package runtimecluster

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// annotationGenerate names the keys of a Secret, separated by commas, whose values the provider generates. They are random, and kept as
// long as the Secret has them: whatever is computed from an instance could be computed by everybody who may read the instance.
const annotationGenerate = "generate"

// generate fills in the generated values of an object that is about to be applied, which is valid: only Secrets have them. Values that exist are
// kept.
func (c *Cluster) generate(ctx context.Context, object *unstructured.Unstructured) error {
	keys := object.GetAnnotations()[c.label(annotationGenerate)]
	if keys == "" {
		return nil
	}
	existing := &corev1.Secret{}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), existing)
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return fmt.Errorf("reading Secret %s: %w", object.GetName(), err)
	}
	for key := range strings.SplitSeq(keys, ",") {
		value := existing.Data[key]
		if len(value) == 0 {
			value = []byte(rand.Text())
		}
		if err := unstructured.SetNestedField(object.Object, base64.StdEncoding.EncodeToString(value), "data", key); err != nil {
			return fmt.Errorf("Secret %s: %w", object.GetName(), err)
		}
	}
	if !isNew {
		// A value that somebody else has generated meanwhile is not replaced.
		object.SetResourceVersion(existing.ResourceVersion)
		return nil
	}
	// Of two that create it, one fails and reads the values of the other.
	created := object.DeepCopy()
	if err := c.Client.Create(ctx, created, client.FieldOwner(Owner)); err != nil {
		return fmt.Errorf("creating Secret %s: %w", object.GetName(), err)
	}
	return nil
}
