package syncer

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/state"
)

func TestClaimOf(t *testing.T) {
	source := Source{testCluster, testKey}
	wanted := metadata{source.Labels(), map[string]string{
		publication.AnnotationRemoteName: testKey.Name, publication.AnnotationRemoteNamespace: testKey.Namespace,
	}}
	wanted.labels[publication.LabelAgentName] = testAgent
	wanted.labels[publication.LabelRemoteResource] = resourceHash(widgetInWorkspace)
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		want                claim
	}{
		"everything is as wanted":                     {wanted.labels, wanted.annotations, claimOwn},
		"annotations are missing":                     {wanted.labels, nil, claimOwn},
		"no metadata at all":                          {nil, nil, claimNone},
		"one label is missing":                        {without(wanted.labels, publication.LabelRemoteNameHash), nil, claimNone},
		"the agent's label is missing":                {without(wanted.labels, publication.LabelAgentName), nil, claimNone},
		"the label of another agent":                  {with(wanted.labels, publication.LabelAgentName, "other"), nil, claimOther},
		"another agent alone":                         {map[string]string{publication.LabelAgentName: "other"}, nil, claimOther},
		"another logical cluster":                     {with(wanted.labels, publication.LabelRemoteCluster, "other"), nil, claimOther},
		"another name, and labels missing":            {map[string]string{publication.LabelRemoteNameHash: "other"}, nil, claimOther},
		"no labels, and annotations of another":       {nil, map[string]string{publication.AnnotationRemoteName: "other"}, claimOther},
		"no labels, and annotations of the source":    {nil, wanted.annotations, claimNone},
		"the label of another resource":               {with(wanted.labels, publication.LabelRemoteResource, "other"), nil, claimOther},
		"no label of the resource":                    {without(wanted.labels, publication.LabelRemoteResource), nil, claimOwn},
		"no label, and another resource":              {without(wanted.labels, publication.LabelRemoteResource), map[string]string{publication.AnnotationRemoteResource: "other"}, claimOther},
		"labels of the source and a different object": {wanted.labels, map[string]string{publication.AnnotationRemoteNamespace: "other"}, claimOther},
	} {
		t.Run(name, func(t *testing.T) {
			existing := &unstructured.Unstructured{Object: map[string]any{}}
			existing.SetLabels(test.labels)
			existing.SetAnnotations(test.annotations)
			if got := claimOf(existing, wanted); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func without(m map[string]string, key string) map[string]string {
	m = maps.Clone(m)
	delete(m, key)
	return m
}

func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	m[key] = value
	return m
}

func TestSourceOf(t *testing.T) {
	clusterScoped := Source{testCluster, types.NamespacedName{Name: strings.Repeat("n", 253)}}
	for _, source := range []Source{{testCluster, testKey}, clusterScoped} {
		copied := &unstructured.Unstructured{Object: map[string]any{}}
		copied.SetLabels(source.Labels())
		annotations := map[string]string{publication.AnnotationRemoteName: source.Name}
		if source.Namespace != "" {
			annotations[publication.AnnotationRemoteNamespace] = source.Namespace
		}
		copied.SetAnnotations(annotations)
		if got, ok := SourceOf(copied); !ok || got != source {
			t.Errorf("got %v, want %v", got, source)
		}
		copied.SetAnnotations(with(annotations, publication.AnnotationRemoteName, "other"))
		if _, ok := SourceOf(copied); ok {
			t.Error("annotations that contradict the labels are accepted")
		}
	}
}

func TestSyncableMetadata(t *testing.T) {
	for key, want := range map[string]struct{ label, annotation bool }{
		"app":                                              {true, true},
		"app.kubernetes.io/name":                           {true, true},
		"notsyncagent.kcp.io/x":                            {true, true},
		"syncagent.kcp.io":                                 {true, true},
		publication.LabelRemoteCluster:                     {false, false},
		publication.LabelRemoteNamespaceHash:               {false, false},
		publication.LabelRemoteNameHash:                    {false, false},
		publication.LabelAgentName:                         {false, false},
		publication.LabelRemoteResource:                    {false, false},
		publication.AnnotationRemoteName:                   {false, false},
		publication.AnnotationRemoteNamespace:              {false, false},
		publication.AnnotationWorkspacePath:                {false, false},
		"related-resources.syncagent.kcp.io/creds.0":       {false, false},
		ownerKeyPrefix + "0123":                            {false, false},
		"claimed.internal.apis.kcp.io/abc":                 {false, true},
		"kcp.io/cluster":                                   {true, false},
		"kubectl.kubernetes.io/last-applied-configuration": {true, false},
	} {
		if got := isSyncableLabel(key); got != want.label {
			t.Errorf("label %s is syncable: %v, want %v", key, got, want.label)
		}
		if got := isSyncableAnnotation(key); got != want.annotation {
			t.Errorf("annotation %s is syncable: %v, want %v", key, got, want.annotation)
		}
	}
}

func TestContentPatch(t *testing.T) {
	for name, test := range map[string]struct{ from, to, want string }{
		"equal contents":                        {"spec: {a: 1}", "spec: {a: 1}", "{}"},
		"a number of another type":              {"spec: {a: 1}", "spec: {a: 1.0}", "{}"},
		"null and missing":                      {"spec: {a: null}", "spec: {}", "{}"},
		"a large number":                        {"spec: {a: 9007199254740993}", "spec: {a: 9007199254740992}", "spec: {a: 9007199254740992}"},
		"a field is changed":                    {"spec: {a: 1, b: 2}", "spec: {a: 1, b: 3}", "spec: {b: 3}"},
		"a field is removed":                    {"spec: {a: 1, b: {c: 2, d: 3}}", "spec: {b: {d: 3}}", "spec: {a: null, b: {c: null}}"},
		"a field at the top is removed":         {"data: {a: x}", "{}", "data: null"},
		"a list is replaced":                    {"spec: {l: [1, 2]}", "spec: {l: [2]}", "spec: {l: [2]}"},
		"an object takes the place of a list":   {"spec: {l: [1]}", "spec: {l: {a: 1}}", "spec: {l: {a: 1}}"},
		"the last label is removed":             {"metadata: {labels: {a: b}}", "{}", "metadata: {labels: {a: null}}"},
		"all metadata is removed, label by key": {"metadata: {labels: {a: b}, annotations: {c: d}}", "metadata: {}", "metadata: {labels: {a: null}, annotations: {c: null}}"},
		"an empty object is added":              {"spec: {}", "spec: {a: {}}", "spec: {a: {}}"},
	} {
		t.Run(name, func(t *testing.T) {
			fields := func(yaml string) map[string]any {
				o := object(widgetInWorkspace, types.NamespacedName{}, yaml).Object
				delete(o, "apiVersion")
				delete(o, "kind")
				if meta, _ := o["metadata"].(map[string]any); meta != nil {
					delete(meta, "name")
					delete(meta, "namespace")
				}
				return o
			}
			got := contentPatch(fields(test.from), fields(test.to))
			want := rawYAML(t, test.want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestContentOfLeavesOutWhatIsNotSynced(t *testing.T) {
	o := object(widgetInWorkspace, testKey, `
metadata: {labels: {a: b, syncagent.kcp.io/agent-name: x}, finalizers: [f], ownerReferences: [{name: o}]}
spec: {a: 1.0, n: null, list: [{x: null, z: 2.0}]}
roleRef: {name: r}
status: {s: 1}
extra: null
`)
	want := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"a": "b"}, "annotations": map[string]any{}},
		"spec":     map[string]any{"a": int64(1), "list": []any{map[string]any{"z": int64(2)}}},
		"roleRef":  map[string]any{"name": "r"},
	}
	if got := contentOf(o); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestOverwriteKeepsIdentityAndForeignMetadata(t *testing.T) {
	existing := object(widgetOnService, types.NamespacedName{Namespace: "ns", Name: "n"}, `
metadata: {labels: {local: "yes", app: old}, resourceVersion: "7", uid: u}
spec: {a: 1}
gone: {x: 1}
status: {s: 1}
`)
	got := overwrite(existing, rawYAML(t, "spec: {b: 2}\nmetadata: {labels: {app: new}}"), metadata{labels: map[string]string{"id": "1"}})
	want := object(widgetOnService, types.NamespacedName{Namespace: "ns", Name: "n"}, `
metadata: {labels: {local: "yes", app: new, id: "1"}, resourceVersion: "7", uid: u}
spec: {b: 2}
status: {s: 1}
`)
	if !reflect.DeepEqual(got.Object, want.Object) {
		t.Errorf("got %v, want %v", got.Object, want.Object)
	}
}

func TestActionFor(t *testing.T) {
	kcp, service := syncagentv1alpha1.RelatedResourceOriginKcp, syncagentv1alpha1.RelatedResourceOriginService
	match := syncagentv1alpha1.CleanupMatchOrigin
	for name, test := range map[string]struct {
		entry      state.Related
		referenced bool
		origin     presence
		want       relatedAction
	}{
		"live and referenced":                                  {state.Related{Side: kcp}, true, originLive, actionSync},
		"live and referenced, of the service":                  {state.Related{Side: service}, true, originLive, actionSync},
		"an object of the workspace is being deleted":          {state.Related{Side: kcp}, true, originTerminating, actionCleanUp},
		"an object of the workspace is gone":                   {state.Related{Side: kcp}, true, originMissing, actionCleanUp},
		"an object of the workspace is not referenced":         {state.Related{Side: kcp}, false, originLive, actionCleanUp},
		"an object of the service is gone":                     {state.Related{Side: service}, true, originMissing, actionKeep},
		"an object of the service is not referenced":           {state.Related{Side: service, Policy: match}, false, originLive, actionKeep},
		"an object of the service is gone, MatchOrigin":        {state.Related{Side: service, Policy: match}, true, originMissing, actionCleanUp},
		"an object of the service is deleted, MatchOrigin":     {state.Related{Side: service, Policy: match}, true, originTerminating, actionCleanUp},
		"not referenced and gone, MatchOrigin":                 {state.Related{Side: service, Policy: match}, false, originMissing, actionCleanUp},
		"an object of the service is gone, OnPrimaryDeletion":  {state.Related{Side: service, Policy: syncagentv1alpha1.CleanupOnPrimaryDeletion}, true, originMissing, actionKeep},
		"the policy is not for objects of workspaces (Orphan)": {state.Related{Side: kcp, Policy: syncagentv1alpha1.CleanupOrphan}, true, originTerminating, actionCleanUp},
	} {
		t.Run(name, func(t *testing.T) {
			if got := actionFor(test.entry, test.referenced, test.origin); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestCleanupPolicyPrefersTheNewerField(t *testing.T) {
	for name, test := range map[string]struct {
		spec syncagentv1alpha1.RelatedResourceSpec
		want syncagentv1alpha1.RelatedResourceCleanupPolicy
	}{
		"nothing set": {syncagentv1alpha1.RelatedResourceSpec{}, syncagentv1alpha1.CleanupOrphan},
		"cleanup":     {syncagentv1alpha1.RelatedResourceSpec{Cleanup: true}, syncagentv1alpha1.CleanupOnPrimaryDeletion},
		"both":        {syncagentv1alpha1.RelatedResourceSpec{Cleanup: true, CleanupPolicy: syncagentv1alpha1.CleanupOrphan}, syncagentv1alpha1.CleanupOrphan},
	} {
		if got := cleanupPolicy(test.spec); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestWithRelatedFinalizers(t *testing.T) {
	own, other, contract := "a.syncagent.kcp.io/cleanup-1", "b.syncagent.kcp.io/cleanup-2", publication.Finalizer
	for name, test := range map[string]struct {
		finalizers             []string
		maybePrimary, previous bool
		want                   []string
	}{
		"both are added":                                       {[]string{"x/y"}, false, false, []string{"x/y", own, contract}},
		"those of others stay":                                 {[]string{contract, other}, false, false, []string{contract, other, own}},
		"what is there is not added":                           {[]string{contract, own}, false, true, []string{contract, own}},
		"an object that may be primary gets the own one":       {nil, true, false, []string{own}},
		"and keeps the contract's":                             {[]string{contract}, true, false, []string{contract, own}},
		"unless api-syncagent has put it there for this one":   {[]string{contract, "x/y"}, true, true, []string{"x/y", own}},
		"and no agent has added it again for a primary object": {[]string{own, contract}, true, true, []string{own, contract}},
	} {
		if got := withRelatedFinalizers(test.finalizers, own, test.maybePrimary, test.previous); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestWithoutRelatedFinalizers(t *testing.T) {
	own, other, legacy := "a.syncagent.kcp.io/cleanup-1", "b.syncagent.kcp.io/cleanup-2", publication.Finalizer
	for name, test := range map[string]struct {
		finalizers   []string
		maybePrimary bool
		want         []string
	}{
		"only the own one":                       {[]string{own}, false, nil},
		"others stay":                            {[]string{"x/y", own}, false, []string{"x/y"}},
		"that of another agent stays":            {[]string{own, other}, false, []string{other}},
		"the older one goes with the last":       {[]string{legacy, own}, false, nil},
		"the older one stays with another":       {[]string{legacy, own, other}, false, []string{legacy, other}},
		"the older one alone":                    {[]string{legacy}, false, nil},
		"the older one stays on primary objects": {[]string{legacy, own}, true, []string{legacy}},
	} {
		isOwn := func(finalizer string) bool { return finalizer == own }
		if got := WithoutRelatedFinalizers(test.finalizers, isOwn, test.maybePrimary); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestMayWrite(t *testing.T) {
	const own, origin = ownerKeyPrefix + "own", "origin"
	other := ownerKeyPrefix + "other"
	for name, test := range map[string]struct {
		owners   map[string]string
		recorded bool
		want     bool
	}{
		"an unrelated object":                 {nil, false, false},
		"they are lost, but the state is not": {nil, true, true},
		"the own copy":                        {map[string]string{own: origin}, false, true},
		"the own copy, of an earlier origin":  {map[string]string{own: "earlier"}, false, true},
		"a copy of the same origin":           {map[string]string{other: origin}, false, true},
		"a copy of another origin":            {map[string]string{other: "another"}, true, false},
		"a copy of another origin as well":    {map[string]string{own: origin, other: "another"}, true, false},
	} {
		annotated, labelled := &metav1.ObjectMeta{Annotations: test.owners}, &metav1.ObjectMeta{Labels: test.owners}
		for _, copied := range []metav1.Object{annotated, labelled} {
			if got := ownersOf(copied, own, origin).mayWrite(test.recorded); got != test.want {
				t.Errorf("%s: got %v, want %v", name, got, test.want)
			}
		}
	}
}

func TestConvert(t *testing.T) {
	for name, test := range map[string]struct {
		from, to      schema.GroupKind
		content, want string
	}{
		"ConfigMap to Secret": {configMapKind, secretKind, "data: {a: dGV4dA==}\nbinaryData: {b: AAE=}\nimmutable: true", "data: {a: dGV4dA==, b: AAE=}\nimmutable: true"},
		"Secret to ConfigMap": {secretKind, configMapKind, "type: Opaque\ndata: {a: dGV4dA==, b: gA==}", "data: {a: dGV4dA==, b: gA==}"},
		"an empty ConfigMap":  {configMapKind, secretKind, "data: {}", "data: {}"},
		"other kinds":         {configMapKind, configMapKind, "data: {a: text}", "data: {a: text}"},
	} {
		got, err := convert(rawYAML(t, test.content), test.from, test.to)
		if want := rawYAML(t, test.want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
	if _, err := convert(rawYAML(t, "data: {a: '?secret?'}"), configMapKind, secretKind); err == nil || strings.Contains(err.Error(), "?secret?") {
		t.Errorf("the error for a value that is not base64 is %v", err)
	}
}

func TestMustReplace(t *testing.T) {
	for name, test := range map[string]struct {
		kind            workspaces.Resource
		copied, content string
		want            bool
	}{
		"data of a Secret":                {secrets, "type: Opaque\ndata: {a: YQ==}", "type: Opaque\ndata: {a: Yg==}", false},
		"the type of a Secret":            {secrets, "type: Opaque", "type: kubernetes.io/tls", true},
		"data of an immutable ConfigMap":  {configMaps, "immutable: true\ndata: {a: x}", "immutable: true\ndata: {a: y}", true},
		"an immutable one as it is":       {configMaps, "immutable: true\ndata: {a: x}", "immutable: true\ndata: {a: x}", false},
		"no longer immutable":             {configMaps, "immutable: true\ndata: {a: x}", "data: {a: x}", true},
		"stringData that has been stored": {secrets, "immutable: true\ndata: {a: eA==, b: dGV4dA==}", "immutable: true\ndata: {a: eA==}\nstringData: {b: text}", false},
		"stringData that differs":         {secrets, "immutable: true\ndata: {b: eQ==}", "immutable: true\nstringData: {b: z}", true},
		"fields of the same name":         {things, "immutable: true\ndata: {a: x}", "data: {a: y}", false},
	} {
		if got := mustReplace(object(test.kind, testKey, test.copied), rawYAML(t, test.content)); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestAnnotationPatch(t *testing.T) {
	const prefix = publication.AnnotationRelatedPrefix
	existing := map[string]string{"note": "x", prefix + "a.0": "old", prefix + "a.1": "stale", prefix + "b.0": "unknown", prefix + "c": "stray"}
	got := annotationPatch(existing, map[string]string{prefix + "a.0": "new", prefix + "b.0": "other"}, map[string]bool{"b": true})
	want := map[string]any{prefix + "a.0": "new", prefix + "a.1": nil, prefix + "c": nil}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRelatedAnnotationsStayWithinTheLimitsOfTheServer(t *testing.T) {
	var synced []relation
	for i := range 2000 {
		synced = append(synced, relation{Related: state.Related{
			Identifier: strings.Repeat("i", 60), Side: syncagentv1alpha1.RelatedResourceOriginService,
			Origin: state.Object{Version: "v1", Kind: "Secret"}, Copy: state.Object{Name: fmt.Sprint("secret-", i)},
		}})
	}
	got, err := relatedAnnotations(synced)
	if err != nil || len(got) != 100 { // the next key would be too long
		t.Errorf("got %d annotations, %v, want 100", len(got), err)
	}
	for i := range synced {
		synced[i].Identifier = "i"
	}
	got, err = relatedAnnotations(synced)
	size := 0
	for key, value := range got {
		size += len(key) + len(value)
	}
	if err != nil || size > maxAnnotations || size < maxAnnotations-200 {
		t.Errorf("got annotations of %d bytes, %v", size, err)
	}
}

func TestErrorsTellWhatTheyMean(t *testing.T) {
	resource := schema.GroupResource{Resource: "secrets"}
	notServed := apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", resource, "x", "404 page not found", 0, true)
	if isMissing(notServed) || !isMissing(fmt.Errorf("reading: %w", apierrors.NewNotFound(resource, "x"))) || isMissing(nil) {
		t.Error("a resource that is not served must not be taken for a missing object")
	}
	claim := errors.Join(errors.New("other"), fmt.Errorf("reading: %w", &ClaimError{resource, apierrors.NewForbidden(resource, "x", errors.New("access denied"))}))
	if !IsClaimNotAccepted(claim) || IsClaimNotAccepted(errors.New("other")) {
		t.Error("IsClaimNotAccepted is wrong")
	}
	if text := consumerText(claim); !strings.Contains(text, "secrets") {
		t.Errorf("the event for the consumer is %q", text)
	}
	if text := consumerText(&OwnedError{"Secret internal/name", "is internal"}); strings.Contains(text, "internal") {
		t.Errorf("the event for the consumer is %q", text)
	}
}

func TestOnlyConflictsAreConflicts(t *testing.T) {
	conflicting, other := conflict(widgetInWorkspace, testKey, "changed"), errors.New("other")
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"none":                      {nil, false},
		"a conflict":                {conflicting, true},
		"wrapped":                   {fmt.Errorf("patching: %w", conflicting), true},
		"two conflicts":             {errors.Join(conflicting, fmt.Errorf("patching: %w", conflicting)), true},
		"another error":             {other, false},
		"a conflict and another":    {errors.Join(conflicting, other), false},
		"both, wrapped":             {fmt.Errorf("syncing: %w", errors.Join(conflicting, fmt.Errorf("reading: %w", other))), false},
		"a claim that is forbidden": {&ClaimError{Err: other}, false},
	} {
		if got := isConflict(test.err); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
