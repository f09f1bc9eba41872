package kubernetes

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
)

func TestReservedCRDs(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster, group, annotation string
		wantErr                    string
	}{
		"own group":                                   {group: "example.com"},
		"system group":                                {group: "apis.kcp.io", wantErr: `group "apis.kcp.io" is reserved`},
		"subdomain of the system group":               {group: "my.apis.kcp.io", wantErr: `group "my.apis.kcp.io" is reserved`},
		"group with the same suffix":                  {group: "myapis.kcp.io", wantErr: `group "myapis.kcp.io" is reserved`},
		"other group of kcp":                          {group: "tenancy.kcp.io"},
		"system group in system:system-crds":          {cluster: "system:system-crds", group: "apis.kcp.io"},
		"system group in system:bound-crds":           {cluster: "system:bound-crds", group: "apis.kcp.io", wantErr: "is reserved"},
		"own annotation":                              {group: "example.com", annotation: "example.com/a"},
		"annotation without a domain":                 {group: "example.com", annotation: "apis.kcp.io"},
		"system annotation":                           {group: "example.com", annotation: "apis.kcp.io/bound-crd", wantErr: `annotation "apis.kcp.io/bound-crd" is reserved`},
		"annotation of a subdomain":                   {group: "example.com", annotation: "internal.apis.kcp.io/x", wantErr: "is reserved"},
		"annotation of a domain with the same suffix": {group: "example.com", annotation: "myapis.kcp.io/x"},
		"system annotation in system:bound-crds":      {cluster: "system:bound-crds", group: "example.com", annotation: "apis.kcp.io/bound-crd"},
		"system annotation in system:system-crds":     {cluster: "system:system-crds", group: "example.com", annotation: "apis.kcp.io/bound-crd", wantErr: "is reserved"},
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
				q := admissiontest.Request{Cluster: tc.cluster, Resource: ownapiextensions.Definitions, Name: "x." + tc.group, User: admissiontest.Master, Operation: operation, Object: definition, Old: definition}
				err := admissiontest.AdmitAndValidate(t, NewReservedCRDAnnotations(rules.Config{}), q)
				if err == nil {
					err = admissiontest.AdmitAndValidate(t, NewReservedCRDGroups(rules.Config{}), q)
				}
				if (err != nil) != (tc.wantErr != "") || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
					t.Errorf("%s: got %v, want %q", operation, err, tc.wantErr)
				}
			}
		})
	}
}
