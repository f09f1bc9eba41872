package admission

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiserver/pkg/admission"

	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
)

func TestReservedCRDs(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster, group, annotation string
		says                       string
	}{
		"a group of one's own":                          {group: "example.com"},
		"the group of the system":                       {group: "apis.kcp.io", says: `group "apis.kcp.io" is reserved`},
		"a group below it":                              {group: "my.apis.kcp.io", says: `group "my.apis.kcp.io" is reserved`},
		"a group that only ends alike":                  {group: "myapis.kcp.io", says: `group "myapis.kcp.io" is reserved`},
		"another group of kcp":                          {group: "tenancy.kcp.io"},
		"the system's group where it belongs":           {cluster: "system:system-crds", group: "apis.kcp.io"},
		"the system's group where others belong":        {cluster: "system:bound-crds", group: "apis.kcp.io", says: "is reserved"},
		"an annotation of one's own":                    {group: "example.com", annotation: "example.com/a"},
		"an annotation without a domain":                {group: "example.com", annotation: "apis.kcp.io"},
		"an annotation of the system":                   {group: "example.com", annotation: "apis.kcp.io/bound-crd", says: `annotation "apis.kcp.io/bound-crd" is reserved`},
		"an annotation below it":                        {group: "example.com", annotation: "internal.apis.kcp.io/x", says: "is reserved"},
		"an annotation whose domain only ends alike":    {group: "example.com", annotation: "myapis.kcp.io/x"},
		"an annotation of the system where it belongs":  {cluster: "system:bound-crds", group: "example.com", annotation: "apis.kcp.io/bound-crd"},
		"an annotation of the system in another corner": {cluster: "system:system-crds", group: "example.com", annotation: "apis.kcp.io/bound-crd", says: "is reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.cluster == "" {
				tc.cluster = "tenant"
			}
			definition := &apiextensions.CustomResourceDefinition{Spec: apiextensions.CustomResourceDefinitionSpec{Group: tc.group}}
			if tc.annotation != "" {
				definition.Annotations = map[string]string{"kept": "yes", tc.annotation: ""}
			}
			for _, operation := range []admission.Operation{admission.Create, admission.Update} {
				q := testRequest{cluster: tc.cluster, resource: ownapiextensions.Definitions, name: "x." + tc.group, user: master, operation: operation, obj: definition, old: definition}
				err := admitAndValidate(t, newReservedCRDAnnotations(Config{}), q)
				if err == nil {
					err = admitAndValidate(t, newReservedCRDGroups(Config{}), q)
				}
				if (err != nil) != (tc.says != "") || (err != nil && !strings.Contains(err.Error(), tc.says)) {
					t.Errorf("%s: got %v, want %q", operation, err, tc.says)
				}
			}
		})
	}
}
