package syncer

import (
	"crypto/sha256"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/syncerview"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
)

func newPublisher() *publisher {
	return &publisher{parsed: documents.New[[sha256.Size]byte, *syncerview.View](limits)}
}

func newExport(description string, claimed ...string) *apisv1alpha2.APIExport {
	export := &apisv1alpha2.APIExport{}
	export.Annotations = map[string]string{syncerview.Annotation: description}
	for _, resource := range claimed {
		export.Spec.PermissionClaims = append(export.Spec.PermissionClaims, apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: resource}})
	}
	return export
}

func TestDescribeVersions(t *testing.T) {
	object := &apiextensions.CustomResourceDefinition{Spec: apiextensions.CustomResourceDefinitionSpec{
		Group: "corp", Names: apiextensions.CustomResourceDefinitionNames{Plural: "certs", Kind: "Cert"},
		Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: "v1beta1"}, {Name: "v1"}, {Name: "v2"}},
	}}
	export := newExport(`{"resources":[{"group":"corp","resource":"certs","source":{"group":"cm.io","kind":"Certificate","resource":"certificates","versions":{"v1beta1":"v1"}}}]}`)
	described, err := newPublisher().Describe(t.Context(), export, discovery.Definition{Object: object})
	if err != nil {
		t.Fatal(err)
	}
	versions := ""
	for _, version := range described.Object.Spec.Versions {
		versions += version.Name + " "
	}
	if versions != "v1 v2 " || described.Object.Spec.Names.Kind != "Certificate" || described.Object.Name != "certificates.cm.io" {
		t.Errorf("got the versions %s of %+v", versions, described.Object.Spec.Names)
	}
	if len(object.Spec.Versions) != 3 || object.Spec.Versions[0].Name != "v1beta1" || object.Spec.Group != "corp" {
		t.Errorf("the definition has changed: %+v", object.Spec)
	}
	other := *object
	other.Spec.Names.Plural = "others"
	if described, err = newPublisher().Describe(t.Context(), export, discovery.Definition{Object: &other}); err != nil || described.Object != &other || described.Verbs != nil {
		t.Errorf("a resource that is not published: %+v, %v", described, err)
	}
}

func TestOffer(t *testing.T) {
	withFilter := `{"resources":[{"group":"corp","resource":"maps","source":{"kind":"ConfigMap","resource":"configmaps"},"filter":{"namespace":{"matchLabels":{"a":"b"}}}}]}`
	plain := `{"resources":[{"group":"corp","resource":"maps","source":{"kind":"ConfigMap","resource":"configmaps"}}],"related":[{"group":"corp","resource":"profiles"}]}`
	taken := `{"resources":[{"group":"corp","resource":"maps","source":{"group":"corp","kind":"Profile","resource":"profiles"}}],"related":[{"group":"corp","resource":"profiles"}]}`
	for name, tc := range map[string]struct {
		export       *apisv1alpha2.APIExport
		resource     string
		own, claimed bool
		want         bool
	}{
		"a published resource":                             {newExport(plain), "maps", true, false, true},
		"a related resource":                               {newExport(plain), "profiles", true, false, true},
		"another resource of the export":                   {newExport(plain), "others", true, false, false},
		"a claimed resource":                               {newExport(plain), "others", false, true, true},
		"neither its own nor claimed":                      {newExport(plain), "maps", false, false, false},
		"no description":                                   {newExport(""), "maps", true, false, false},
		"an invalid description":                           {newExport(`{"related":[{"resource":"a/b"},{"group":"corp","resource":"maps"}]}`), "maps", true, false, false},
		"its name on the service cluster is claimed":       {newExport(plain, "configmaps"), "maps", true, false, false},
		"its name there is that of a related resource":     {newExport(taken), "maps", true, false, false},
		"it selects namespaces, which are not claimed":     {newExport(withFilter), "maps", true, false, false},
		"it selects namespaces, which the export may read": {newExport(withFilter, "namespaces"), "maps", true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			entry, offered, err := newPublisher().Offer(t.Context(), tc.export, schema.GroupResource{Group: "corp", Resource: tc.resource}, tc.own, tc.claimed)
			if err != nil || offered != tc.want || (entry != "") != (offered && tc.resource == "maps") {
				t.Errorf("got %q, %v, %v", entry, offered, err)
			}
		})
	}
}
