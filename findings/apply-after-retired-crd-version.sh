#!/usr/bin/env bash
# Server-side apply of a custom resource fails after its definition has lost a version in which somebody has once applied it.
#
# Versions: k8s.io/apiextensions-apiserver and k8s.io/apimachinery v0.37.2 with sigs.k8s.io/structured-merge-diff/v6 v6.4.2.
# Behaviour: metadata.managedFields has the version in which each manager wrote. The merge library asks its converter whether an error
#   means that a version is gone, and if so, forgets the manager and goes on. The converter of custom resources answers
#   with an error that this question does not recognise, so that the apply of any other manager fails, in a version that exists.
# Output seen: `request to convert CR to an invalid group/version: example.org/v1alpha1`, which an API server answers as a 500.
# What follows: managedFields are to be rewritten before a version is removed from a definition; the storage version alone is not enough.
#
# The script prints what it sees, and fails if the behaviour has changed. It needs Go.
set -euo pipefail

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.org/finding

go 1.26.0

require (
	k8s.io/api v0.37.2
	k8s.io/apiextensions-apiserver v0.37.2
	k8s.io/apimachinery v0.37.2
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2
)
MOD
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

type objects struct{}

func (objects) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func (objects) Default(runtime.Object) {}

// manager returns the field manager that the server of custom resources makes for a definition with these versions.
func manager(factory *conversion.CRConverterFactory, kind schema.GroupVersionKind, versions ...string) (*managedfields.FieldManager, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: kind.Group, Scope: apiextensionsv1.ClusterScoped,
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
	}}
	for _, version := range versions {
		definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Served: true, Storage: version == "v1"})
	}
	safe, _, err := factory.NewConverter(definition)
	if err != nil {
		return nil, err
	}
	return managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), safe, objects{}, objects{}, kind, kind.GroupVersion(), "", nil)
}

func object(version, field string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/" + version, "kind": "Widget",
		"metadata": map[string]any{"name": "one"}, "spec": map[string]any{field: "set"},
	}}
}

func run() error {
	factory, err := conversion.NewCRConverterFactory(nil, nil)
	if err != nil {
		return err
	}
	alpha, v1 := schema.GroupVersionKind{Group: "example.org", Version: "v1alpha1", Kind: "Widget"}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}
	first, err := manager(factory, alpha, "v1alpha1", "v1")
	if err != nil {
		return err
	}
	live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1alpha1", "kind": "Widget", "metadata": map[string]any{"name": "one"}}}
	applied, err := first.Apply(live, object("v1alpha1", "size"), "first", false)
	if err != nil {
		return fmt.Errorf("the first apply, in v1alpha1: %w", err)
	}
	stored := applied.(*unstructured.Unstructured)
	stored.SetAPIVersion("example.org/v1")

	for _, test := range []struct {
		text     string
		versions []string
	}{{"while v1alpha1 exists", []string{"v1alpha1", "v1"}}, {"after v1alpha1 is removed", []string{"v1"}}} {
		second, err := manager(factory, v1, test.versions...)
		if err != nil {
			return err
		}
		_, err = second.Apply(stored.DeepCopy(), object("v1", "colour"), "second", false)
		fmt.Printf("apply in v1 by another manager, %s: %v\n", test.text, err)
		failed := err != nil && strings.Contains(err.Error(), "invalid group/version: example.org/v1alpha1")
		if expected := len(test.versions) == 1; failed != expected || (err != nil && !expected) {
			return fmt.Errorf("the behaviour has changed: the apply %s fails for the retired version: %v", test.text, failed)
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
GO
go mod tidy >/dev/null 2>&1
go run .
