package publisher

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// published returns a publication with a schema; those with greater ages are older.
func published(t *testing.T, schemaName, spec string, age time.Duration) *publication.Publication {
	t.Helper()
	object := &syncagentv1alpha1.PublishedResource{ObjectMeta: metav1.ObjectMeta{
		Name: schemaName, CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-age)),
	}}
	if err := yaml.UnmarshalStrict([]byte(spec), &object.Spec); err != nil {
		t.Fatal(err)
	}
	return &publication.Publication{Object: object, Spec: object.Spec, SchemaName: schemaName}
}

func TestMergeSchemas(t *testing.T) {
	for name, tc := range map[string]struct {
		existing, published, want, duplicates string
	}{
		"an empty export":                         {"", "v1.b.x.io v1.a.x.io", "v1.a.x.io v1.b.x.io", ""},
		"A4: schemas of others survive":           {"foreign.c.x.io other.a.y.io", "v1.a.x.io", "v1.a.x.io other.a.y.io foreign.c.x.io", ""},
		"A6: an outdated schema is replaced":      {"v1.a.x.io", "v2.a.x.io", "v2.a.x.io", ""},
		"A5: a deleted publication's stays":       {"v1.a.x.io v1.b.x.io", "v1.a.x.io", "v1.a.x.io v1.b.x.io", ""},
		"the order is that of resources":          {"", "v1.z.a.io v9.a.z.io v5.m.m.io", "v9.a.z.io v5.m.m.io v1.z.a.io", ""},
		"nothing published changes nothing":       {"foreign.c.x.io", "", "foreign.c.x.io", ""},
		"of two for one resource the first stays": {"", "v1.a.x.io v2.a.x.io", "v1.a.x.io", "v2.a.x.io"},
	} {
		t.Run(name, func(t *testing.T) {
			publications := []*publication.Publication{published(t, "", "{}", 0)}
			for i, schemaName := range strings.Fields(tc.published) {
				publications = append(publications, published(t, schemaName, "{}", time.Hour-time.Duration(i)*time.Minute))
			}
			exported, duplicates := SelectSchemas(publications)
			if diff := cmp.Diff(tc.want, strings.Join(mergeSchemas(strings.Fields(tc.existing), exported), " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var names []string
			for _, p := range duplicates {
				names = append(names, p.SchemaName)
			}
			if got := strings.Join(names, " "); got != tc.duplicates {
				t.Errorf("duplicates are %q, want %q", got, tc.duplicates)
			}
		})
	}
}

// describe returns claims as "group/resource", with the fields that differ from the defaults.
func describe(claims []apisv1alpha1.PermissionClaim) string {
	var all []string
	for _, claim := range claims {
		text := claim.Group + "/" + claim.Resource
		if !claim.All {
			text += "(selected)"
		}
		if claim.IdentityHash != "" {
			text += "@" + claim.IdentityHash
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestClaims(t *testing.T) {
	related := func(entry string) string {
		return "{related: [{identifier: a, object: {template: {template: x}}, " + entry + "}]}"
	}
	selector := apisv1alpha1.PermissionClaim{
		GroupResource: apisv1alpha1.GroupResource{Resource: "events"}, ResourceSelector: []apisv1alpha1.ResourceSelector{{Name: "a"}},
	}
	for name, tc := range map[string]struct {
		existing []apisv1alpha1.PermissionClaim
		specs    []string
		want     string
		added    string
	}{
		"A1: plain resources need events": {nil, []string{"{}", "{}"}, "/events", "/events"},
		"A2: related Secrets and ConfigMaps": {
			nil, []string{related("origin: service, kind: Secret"), related("origin: kcp, kind: ConfigMap")},
			"/configmaps /events /namespaces /secrets", "/events /namespaces /secrets /configmaps",
		},
		"a filter of namespaces":             {nil, []string{"{filter: {namespace: {matchLabels: {a: b}}}}"}, "/events /namespaces", "/events /namespaces"},
		"a filter of objects":                {nil, []string{"{filter: {resource: {matchLabels: {a: b}}}}"}, "/events", "/events"},
		"paths of workspaces":                {nil, []string{"{enableWorkspacePaths: true}"}, "/events core.kcp.io/logicalclusters", "/events core.kcp.io/logicalclusters"},
		"a foreign resource of the consumer": {nil, []string{related("origin: kcp, group: db.io, version: v1, resource: dbs, identityHash: abc")}, "/events /namespaces db.io/dbs@abc", "/events /namespaces db.io/dbs@abc"},
		"a resource that is projected on its way to the workspace": {
			nil, []string{related("origin: service, group: a.io, version: v1, resource: as, projection: {group: b.io, resource: bs}")},
			"/events /namespaces b.io/bs", "/events /namespaces b.io/bs",
		},
		"a resource that is projected on its way to the service": {
			nil, []string{related("origin: kcp, group: a.io, version: v1, resource: as, projection: {group: b.io, resource: bs}")},
			"/events /namespaces a.io/as", "/events /namespaces a.io/as",
		},
		"a resource of the same export": {nil, []string{related("origin: kcp, group: x.io, version: v1, resource: own")}, "/events /namespaces", "/events /namespaces"},
		"A3: claims of others stay, and are sorted": {
			[]apisv1alpha1.PermissionClaim{newClaim("z.io", "zs", "1"), newClaim("", "secrets", ""), newClaim("a.io", "as", "2")}, []string{"{}"},
			"/events /secrets a.io/as@2 z.io/zs@1", "/events",
		},
		"claims that are not needed stay":                  {[]apisv1alpha1.PermissionClaim{newClaim("", "events", ""), newClaim("", "namespaces", "")}, []string{"{}"}, "/events /namespaces", ""},
		"a claim with a selector is not claimed again":     {[]apisv1alpha1.PermissionClaim{selector}, []string{"{}"}, "/events(selected)", ""},
		"a claim of another identity is not claimed again": {[]apisv1alpha1.PermissionClaim{newClaim("", "events", "abc")}, []string{"{}"}, "/events@abc", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var publications []*publication.Publication
			for _, spec := range tc.specs {
				publications = append(publications, published(t, "v1.own.x.io", spec, 0))
			}
			merged, added := mergeClaims(tc.existing, wantedClaims(publications, []string{"v1.own.x.io"}))
			if diff := cmp.Diff(tc.want, describe(merged)); diff != "" {
				t.Errorf("merged (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.added, describe(added)); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyPublishedResourcesClaim(t *testing.T) {
	spec := "{enableWorkspacePaths: true}"
	invalid := published(t, "v1.a.x.io", spec, 0)
	invalid.Invalid = field.ErrorList{field.Required(field.NewPath("spec"), "")}
	claims := wantedClaims([]*publication.Publication{published(t, "", spec, 0), invalid}, nil)
	if diff := cmp.Diff("/events", describe(claims)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A claim of another identity is a claim of another resource; the condition Exported reports it.
func TestClaimsOfOtherIdentities(t *testing.T) {
	p := published(t, "v1.own.x.io", "{related: [{identifier: a, object: {template: {template: x}}, origin: kcp, group: db.io, version: v1, resource: dbs, identityHash: abc}]}", 0)
	for identity, want := range map[string]metav1.ConditionStatus{"abc": metav1.ConditionTrue, "other": metav1.ConditionFalse, "": metav1.ConditionFalse} {
		export := &apisv1alpha1.APIExport{}
		export.Spec.PermissionClaims, _ = mergeClaims([]apisv1alpha1.PermissionClaim{newClaim("db.io", "dbs", identity)}, wantedClaims([]*publication.Publication{p}, nil))
		condition := claimCondition(p, export, metav1.Condition{Status: metav1.ConditionTrue})
		if condition.Status != want || want == metav1.ConditionFalse && !strings.Contains(condition.Message, "dbs.db.io") {
			t.Errorf("a claim with identity %q: %+v", identity, condition)
		}
	}
}
