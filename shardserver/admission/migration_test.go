package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
)

func TestRefuseMigrations(t *testing.T) {
	for name, tc := range map[string]struct {
		operation   admission.Operation
		subresource string
		refused     bool
	}{
		"a new migration is refused":       {admission.Create, "", true},
		"the update of an old one is not":  {admission.Update, "", false},
		"the deletion of an old one isn't": {admission.Delete, "", false},
		"its status is not":                {admission.Update, "status", false},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "root", resource: migrations, subresource: tc.subresource, name: "x", user: master, operation: tc.operation, obj: &unstructured.Unstructured{}, old: &unstructured.Unstructured{}}
			plugin := newRefuseMigrations(Config{})
			if !plugin.Handles(tc.operation) {
				if tc.refused {
					t.Fatal("the plug-in does not handle the operation")
				}
				return
			}
			if err := admitAndValidate(t, plugin, q); (err != nil) != tc.refused {
				t.Errorf("got %v, want refused %t", err, tc.refused)
			}
		})
	}
}
