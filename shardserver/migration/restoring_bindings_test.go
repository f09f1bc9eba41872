package migration

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestRestoreBindings has workspaces that bind an export of their own, with objects in some versions.
func TestRestoreBindings(t *testing.T) {
	const identity, storage = "0a", "/example.com/widgets/0a"
	for name, tc := range map[string]struct {
		offers  string            // the schema that the export has
		schemas map[string]string // their only version
		bound   []string          // in which objects have ever been stored
		stored  string            // the version of the objects that are there
		where   string
		want    string
	}{
		"the version of the schema":         {offers: "one", schemas: map[string]string{"one": "v1"}, bound: []string{"v1"}, stored: "v1"},
		"a schema that replaces it":         {offers: "two", schemas: map[string]string{"one": "v1", "two": "v1"}, bound: []string{"v1"}, stored: "v1"},
		"a version that is gone":            {offers: "two", schemas: map[string]string{"one": "v1", "two": "v2"}, bound: []string{"v1"}, want: "objects of widgets.example.com in version v1, which APIExport widgets"},
		"one that no status has":            {offers: "two", schemas: map[string]string{"two": "v2"}, bound: []string{"v2"}, stored: "v1", want: "objects of widgets.example.com in version v1, which APIExport widgets"},
		"a resource that is not offered":    {schemas: map[string]string{"one": "v1"}, bound: []string{"v1"}, stored: "v1"},
		"a schema that is gone":             {schemas: map[string]string{"two": "v1"}, bound: []string{"v1"}, want: "needs APIResourceSchema one of logical cluster team"},
		"virtual storage":                   {offers: "gone"},
		"objects that no binding has":       {offers: "one", schemas: map[string]string{"one": "v1"}, bound: []string{"v1"}, stored: "v1", where: "/example.com/widgets/0b", want: "objects of /example.com/widgets/0b in the backup, and no binding for them"},
		"an export that is not in a backup": {offers: "none", want: "needs APIExport widgets of logical cluster team, which does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			in := &incomingRestore{cluster: logicalcluster.MustParseName("team")}
			in.Path = "root:acme:team"
			export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
			export.Status.IdentityHash = identity
			if tc.offers != "" {
				export.Spec.Resources = []apisv1alpha2.ResourceSchema{{Group: "example.com", Name: "widgets", Schema: tc.offers}}
			}
			binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
			binding.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Name: "widgets"}
			binding.Status.APIExportClusterName = "team"
			binding.Status.BoundResources = []apisv1alpha2.BoundAPIResource{{
				Group: "example.com", Resource: "widgets", StorageVersions: tc.bound, Schema: apisv1alpha2.BoundAPIResourceSchema{Name: "one", IdentityHash: identity},
			}}
			content := &restoredContent{
				bindings: []*apisv1alpha2.APIBinding{binding}, exports: map[string]*apisv1alpha2.APIExport{"widgets": export},
				schemas: map[string]*apisv1alpha1.APIResourceSchema{}, versions: map[string]sets.Set[string]{},
			}
			if tc.offers == "none" {
				delete(content.exports, "widgets")
			}
			for name, version := range tc.schemas {
				one := &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: name}}
				one.Spec.Versions = []apisv1alpha1.APIResourceVersion{{Name: version}}
				content.schemas[name] = one
			}
			if tc.stored != "" {
				where := storage
				if tc.where != "" {
					where = tc.where
				}
				content.versions[where] = sets.New(tc.stored)
			}
			err := in.checkBindings(t.Context(), content)
			if (err == nil) != (tc.want == "") || err != nil && (!isRefused(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
