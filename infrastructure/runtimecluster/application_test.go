package runtimecluster

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestNothingIsAppliedWithoutAllKinds(t *testing.T) {
	objects := make([]*unstructured.Unstructured, 2)
	for i, kind := range []string{"ConfigMap", "Nonexistent"} {
		objects[i] = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "mine"}}}
	}
	c := &Cluster{Group: "example.org", Backend: "test", Client: fake.NewClientBuilder().Build()}
	a := &Application{cluster: c, set: Set{Template: "redis", Instance: "mine"}, inventory: &inventory{}}
	_, err := a.Apply(t.Context(), objects)
	if _, ok := errors.AsType[*KindError](err); !ok {
		t.Errorf("the error is %v", err)
	}
	var made corev1.ConfigMapList
	if err := c.Client.List(t.Context(), &made); err != nil || len(made.Items) > 0 {
		t.Errorf("made %v, %v", made.Items, err)
	}
}
