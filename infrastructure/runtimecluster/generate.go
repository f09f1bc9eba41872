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

// annotationGenerate names the keys of a Secret, separated by commas, whose values the provider generates. The values are random, and the
// provider retains them as long as the Secret has them. Everybody who may read an instance could compute values that are derived from it.
const annotationGenerate = "generate"

// generate sets the generated values of a validated object before it is applied; only Secrets can have them. It retains existing
// values.
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
		// The resource version prevents overwriting a value that somebody else has generated in the meantime.
		object.SetResourceVersion(existing.ResourceVersion)
		return nil
	}
	// If two processes create it, one fails, and reads the values of the other when it retries.
	created := object.DeepCopy()
	if err := c.Client.Create(ctx, created, client.FieldOwner(Owner)); err != nil {
		return fmt.Errorf("creating Secret %s: %w", object.GetName(), err)
	}
	return nil
}
