package crd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	servicesv1alpha1 "github.com/atoll-dev/atoll/api/kdp/services/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

const publishedResourceDefinition = "../../config/sync-agent/crd/syncagent.kcp.io_publishedresources.yaml"

// The rows V1 to V7 of the contract, as entries of spec.related. Each is checked by the definition and by Validate.

const locator = "identifier: a\nobject: {reference: {path: spec.name}}\n"

type relatedCase struct {
	name    string
	related string
	refused string // path below spec.related[0] that Validate names; empty means accepted
}

func TestV1KindExcludesVersionAndResource(t *testing.T) {
	checkRelated(t, []relatedCase{
		{"accepts a kind", "origin: kcp\nkind: Secret", ""},
		{"accepts version and resource", "origin: kcp\nversion: v1\nresource: secrets", ""},
		{"refuses neither", "origin: kcp", "version"},
		{"refuses kind with version and resource", "origin: kcp\nkind: Secret\nversion: v1\nresource: secrets", "kind"},
		{"refuses kind with version", "origin: kcp\nkind: Secret\nversion: v1", "kind"},
		{"refuses kind with resource", "origin: kcp\nkind: Secret\nresource: secrets", "kind"},
	})
}

func TestV2ResourceAndVersionGoTogether(t *testing.T) {
	checkRelated(t, []relatedCase{
		{"accepts both", "origin: service\nversion: v1\nresource: secrets", ""},
		{"refuses a resource without version", "origin: service\nresource: secrets", "version"},
		{"refuses a version without resource", "origin: service\nversion: v1", "resource"},
	})
}

func TestV3GroupNeedsVersionAndResource(t *testing.T) {
	checkRelated(t, []relatedCase{
		{"accepts group, version and resource", "origin: kcp\ngroup: example.com\nversion: v1\nresource: things", ""},
		{"refuses group with kind", "origin: kcp\ngroup: example.com\nkind: Secret", "group"},
		{"refuses group with version", "origin: kcp\ngroup: example.com\nversion: v1", "group"},
		{"refuses group with resource", "origin: kcp\ngroup: example.com\nresource: things", "group"},
	})
}

func TestV4IdentityHashNeedsGroupVersionAndResource(t *testing.T) {
	checkRelated(t, []relatedCase{
		{"accepts all", "origin: kcp\ngroup: example.com\nversion: v1\nresource: things\nidentityHash: abc", ""},
		{"refuses it with kind", "origin: kcp\nkind: Secret\nidentityHash: abc", "identityHash"},
		{"refuses it without group", "origin: kcp\nversion: v1\nresource: secrets\nidentityHash: abc", "identityHash"},
		{"refuses it without version", "origin: kcp\ngroup: example.com\nresource: things\nidentityHash: abc", "identityHash"},
	})
}

func TestV5StatusOfTheServiceNeedsWatch(t *testing.T) {
	checkRelated(t, []relatedCase{
		{"accepts it with watch", "origin: service\nkind: Secret\nsyncStatus: true\nwatch: {byOwner: {}}", ""},
		{"accepts it off", "origin: service\nkind: Secret\nsyncStatus: false", ""},
		{"accepts it with origin kcp", "origin: kcp\nkind: Secret\nsyncStatus: true", ""},
		{"refuses it without watch", "origin: service\nkind: Secret\nsyncStatus: true", "watch"},
	})
}

func TestV6WatchIsByOwnerOrBySelector(t *testing.T) {
	checkRelated(t, []relatedCase{
		{"accepts byOwner", "origin: service\nkind: Secret\nwatch: {byOwner: {}}", ""},
		{"accepts bySelector", "origin: service\nkind: Secret\nwatch: {bySelector: {matchLabels: {a: b}}}", ""},
		{"refuses none", "origin: service\nkind: Secret\nwatch: {}", "watch"},
		{"refuses both", "origin: service\nkind: Secret\nwatch: {byOwner: {}, bySelector: {matchLabels: {a: b}}}", "watch"},
	})
}

func TestV7ValuesOfOriginAndKind(t *testing.T) {
	checkRelated(t, []relatedCase{
		{"accepts service", "origin: service\nkind: ConfigMap", ""},
		{"accepts kcp", "origin: kcp\nkind: ConfigMap", ""},
		{"refuses the older platform", "origin: platform\nkind: ConfigMap", "origin"},
		{"refuses no origin", "kind: ConfigMap", "origin"},
		{"refuses another kind", "origin: kcp\nkind: Pod", "kind"},
	})
}

func checkRelated(t *testing.T, cases []relatedCase) {
	t.Helper()
	d := readDefinition(t, publishedResourceDefinition)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			entry := strings.ReplaceAll(strings.TrimSpace(locator+tc.related), "\n", "\n    ")
			document := "apiVersion: syncagent.kcp.io/v1alpha1\nkind: PublishedResource\nmetadata:\n  name: sample\n" +
				"spec:\n  resource: {apiGroup: example.com, kind: Thing}\n  related:\n  - " + entry + "\n"
			_, admitted := d.admit(t.Context(), document)
			var object syncagentv1alpha1.PublishedResource
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			validated := publication.Validate(&object.Spec, field.NewPath("spec"))
			if tc.refused == "" {
				if len(admitted)+len(validated) > 0 {
					t.Errorf("the definition: %v; Validate: %v", admitted, validated)
				}
				return
			}
			if len(admitted) == 0 {
				t.Error("the definition accepts it")
			}
			want := "spec.related[0]." + tc.refused
			for _, err := range validated {
				if err.Field == want {
					return
				}
			}
			t.Errorf("Validate does not refuse %s: %v", want, validated)
		})
	}
}

func TestDefinitionsOfTheSyncAgentAreValid(t *testing.T) {
	files, err := filepath.Glob("../../config/sync-agent/*/*kcp.io_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	older, err := filepath.Glob("../../config/sync-agent/*/*kdp.k8c.io_*.yaml")
	if err != nil || len(files) != 1 || len(older) != 2 {
		t.Fatalf("definitions are %v and %v (%v)", files, older, err)
	}
	for _, file := range append(files, older...) {
		for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), readDefinition(t, file).internal) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestManifestsOfTheOlderDialectAreAdmitted(t *testing.T) {
	d := readDefinition(t, "../../config/sync-agent/kdp/services.kdp.k8c.io_publishedresources.yaml")
	files, err := filepath.Glob("../../syncagent/kdp/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		document, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object, errs := d.admit(t.Context(), string(document))
		if len(errs) > 0 {
			t.Errorf("%s: %v", file, errs)
		}
		stored, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var before, after servicesv1alpha1.PublishedResource
		if err := errors.Join(yaml.UnmarshalStrict(document, &before), yaml.UnmarshalStrict(stored, &after)); err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(before, after) {
			t.Errorf("%s: the definition prunes fields: %s", file, stored)
		}
	}
}

func TestServicesOfTheOlderDialect(t *testing.T) {
	d := readDefinition(t, "../../config/sync-agent/kdp/core.kdp.k8c.io_services.yaml")
	for _, tc := range []struct{ name, spec, refused string }{
		{"accepts the service of the guide", "apiGroup: certificates.example.corp\ncatalogMetadata: {title: Certificate Management, description: Acquire certificates.}", ""},
		{"accepts a Secret for the kubeconfig", "apiGroup: certificates.example.corp\nkubeconfig: {name: agent, namespace: agents}", ""},
		{"refuses no group", "catalogMetadata: {title: a}", "spec.apiGroup"},
		{"refuses a group without a domain", "apiGroup: certificates", "spec.apiGroup"},
		{"refuses a Secret without a name", "apiGroup: a.b\nkubeconfig: {namespace: agents}", "spec.kubeconfig.name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			document := strings.Replace(manifest("Service", tc.spec), "operator.kcp.io", "core.kdp.k8c.io", 1)
			if _, errs := d.admit(t.Context(), document); (tc.refused == "") != (len(errs) == 0) {
				t.Errorf("refused: %v", errs)
			} else if tc.refused != "" && !strings.Contains(errs.ToAggregate().Error(), tc.refused) {
				t.Errorf("%s is not named: %v", tc.refused, errs)
			}
		})
	}
}

func TestPublishedResources(t *testing.T) {
	d := readDefinition(t, publishedResourceDefinition)
	for _, tc := range []struct{ name, spec, refused string }{
		{"accepts the core group", "resource: {apiGroup: '', kind: ConfigMap}", ""},
		{"refuses a source without group", "resource: {kind: ConfigMap}", "spec.resource.apiGroup"},
		{"refuses no source", "naming: {name: a}", "spec.resource"},
		{"refuses the older filter by the name of a namespace", "resource: {apiGroup: a, kind: B}\nfilter: {namespace: my-app}", "spec.filter.namespace"},
		{"refuses another scope", "resource: {apiGroup: a, kind: B}\nprojection: {scope: Global}", "spec.projection.scope"},
		{"refuses synchronization without a decision", "resource: {apiGroup: a, kind: B}\nsynchronization: {}", "spec.synchronization.enabled"},
		{"refuses a mutation without path", "resource: {apiGroup: a, kind: B}\nmutation: {spec: [{delete: {}}]}", "spec.mutation.spec[0].delete.path"},
		{"refuses a selector without rewrite", "resource: {apiGroup: a, kind: B}\nrelated: [{identifier: a, origin: kcp, kind: Secret, object: {selector: {matchLabels: {a: b}}}}]", "rewrite"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			document := strings.Replace(manifest("PublishedResource", tc.spec), "operator.kcp.io", "syncagent.kcp.io", 1)
			object, errs := d.admit(t.Context(), document)
			switch {
			case tc.refused == "" && len(errs) > 0:
				t.Error(errs)
			case tc.refused != "" && !strings.Contains(errs.ToAggregate().Error(), tc.refused):
				t.Errorf("%s is not named: %v", tc.refused, errs)
			case tc.refused == "" && object == nil:
				t.Error("no object")
			}
		})
	}
}

// Null and empty lists of short names differ: the first keeps those of the source, the second removes them.
func TestEmptyListsOfNamesSurvive(t *testing.T) {
	d := readDefinition(t, publishedResourceDefinition)
	document := strings.Replace(manifest("PublishedResource", "resource: {apiGroup: a, kind: B}\nprojection: {shortNames: []}"), "operator.kcp.io", "syncagent.kcp.io", 1)
	object, errs := d.admit(t.Context(), document)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	stored, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var decoded syncagentv1alpha1.PublishedResource
	if err := yaml.UnmarshalStrict(stored, &decoded); err != nil {
		t.Fatal(err)
	}
	if names := decoded.Spec.Projection.ShortNames; names == nil || len(*names) != 0 {
		t.Errorf("short names are %v, want an empty list", names)
	}
	if decoded.Spec.Projection.Categories != nil {
		t.Error("categories are set")
	}
}

func readDefinition(t *testing.T, file string) *definition {
	t.Helper()
	d, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
