package apiindex

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// namespacedSchemas has a schema of each name, which is the kind. "missing" does not exist, and "broken" cannot be read.
type namespacedSchemas struct{}

func (namespacedSchemas) GetSchema(_ context.Context, _ logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
	switch name {
	case "missing":
		return nil, apierrors.NewNotFound(apisv1alpha1.Resource("apiresourceschemas"), name)
	case "broken":
		return nil, errors.New("broken")
	}
	found := &apisv1alpha1.APIResourceSchema{}
	found.Spec.Scope, found.Spec.Names.Kind = apiextensionsv1.NamespaceScoped, name
	return found, nil
}

func TestServedKinds(t *testing.T) {
	before := ServedKinds{"a.example.com": {"Cluster", "A"}}
	for name, tc := range map[string]struct {
		resources []string // "<name> <schema>"
		want      string
		fails     bool
	}{
		"nothing is offered":                    {nil, `{"a.example.com":{"scope":"Cluster","kind":"A"}}`, false},
		"what was recorded stays":               {[]string{"a B"}, `{"a.example.com":{"scope":"Cluster","kind":"A"}}`, false},
		"another resource is added":             {[]string{"b B"}, `{"a.example.com":{"scope":"Cluster","kind":"A"},"b.example.com":{"scope":"Namespaced","kind":"B"}}`, false},
		"a schema that does not exist":          {[]string{"b missing", "c C"}, `{"a.example.com":{"scope":"Cluster","kind":"A"},"c.example.com":{"scope":"Namespaced","kind":"C"}}`, false},
		"a schema that cannot be read":          {[]string{"b broken"}, "", true},
		"a resource for which there is no room": {[]string{"b " + strings.Repeat("B", maxServedKindsSize)}, `{"a.example.com":{"scope":"Cluster","kind":"A"}}`, false},
		"the first of two with one resource":    {[]string{"b B", "b C"}, `{"a.example.com":{"scope":"Cluster","kind":"A"},"b.example.com":{"scope":"Namespaced","kind":"B"}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var spec apisv1alpha2.APIExportSpec
			for _, resource := range tc.resources {
				plural, schemaName, _ := strings.Cut(resource, " ")
				spec.Resources = append(spec.Resources, apisv1alpha2.ResourceSchema{Name: plural, Group: "example.com", Schema: schemaName})
			}
			got, err := before.With(t.Context(), namespacedSchemas{}, logicalcluster.MustParseName("c"), spec)
			if (err != nil) != tc.fails || (err == nil && got.String() != tc.want) {
				t.Errorf("got %s, %v", got, err)
			}
			if len(before) != 1 {
				t.Errorf("the record was changed to %v", before)
			}
		})
	}
}

func TestServedKindsAreBounded(t *testing.T) {
	var spec apisv1alpha2.APIExportSpec
	for i := range 10000 {
		spec.Resources = append(spec.Resources, apisv1alpha2.ResourceSchema{Name: fmt.Sprintf("r%d", i), Group: "example.com", Schema: "Kind"})
	}
	got, err := ServedKinds(nil).With(t.Context(), namespacedSchemas{}, logicalcluster.MustParseName("c"), spec)
	if size := len(got.String()); err != nil || size > maxServedKindsSize || size < maxServedKindsSize/2 {
		t.Errorf("%d bytes, %v", size, err)
	}
}

func TestCheckUnchanged(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	served := ServedKind{apiextensionsv1.NamespaceScoped, "Widget"}
	for name, tc := range map[string]struct {
		other ServedKind
		want  string
	}{
		"the same":      {served, ""},
		"another scope": {ServedKind{apiextensionsv1.ClusterScoped, "Widget"}, "widgets.example.com cannot be served with scope Cluster: it has been served with scope Namespaced"},
		"another kind":  {ServedKind{apiextensionsv1.NamespaceScoped, "Gadget"}, "widgets.example.com cannot be served with kind Gadget: it has been served with kind Widget"},
	} {
		t.Run(name, func(t *testing.T) {
			err := served.CheckUnchanged(widgets, tc.other)
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v", err)
			}
		})
	}
}
