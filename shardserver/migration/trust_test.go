package migration

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // decodes the objects below

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // decodes the objects below
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// TestAnswersTo: the origin answers to none but the destination that the shard of the Workspace has allowed.
func TestAnswersTo(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Origin)
		shard  string
		want   bool
	}{
		"the destination":                   {want: true},
		"another shard":                     {shard: "gamma"},
		"nobody":                            {shard: "-"},
		"the origin itself":                 {shard: "alpha", change: func(o *Origin) { o.Migration.Spec.DestinationShard = "alpha" }},
		"before the shard of the Workspace": {change: func(o *Origin) { o.Migration.Status.Conditions = nil }},
		"a rule breaks during the pause": {change: func(o *Origin) {
			o.Migration.Status.Conditions, o.Cluster.Annotations[corev1alpha1.WritesPausedAnnotationKey] = nil, "t"
		}, want: true},
		"before the origin is known":  {change: func(o *Origin) { o.Migration.Status.OriginShard = "" }},
		"another shard is the origin": {change: func(o *Origin) { o.Migration.Status.OriginShard = "gamma" }},
		"it is being prepared":        {change: func(o *Origin) { o.Migration.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhasePreparing }},
		"it is being deleted":         {change: func(o *Origin) { o.Migration.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		"it has ended":                {change: func(o *Origin) { o.Migration.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseFailed }},
		"it does not exist":           {change: func(o *Origin) { o.Migration = nil }},
		"it was not accepted":         {change: func(o *Origin) { o.Cluster.Annotations = nil }},
		"another one was accepted":    {change: func(o *Origin) { o.Cluster.Annotations[corev1alpha1.MigratingAnnotationKey] = "home:other" }},
		"a copy that arrives":         {change: func(o *Origin) { o.Cluster.Annotations[corev1alpha1.ArrivingAnnotationKey] = "m" }},
		"there is no logical cluster": {change: func(o *Origin) { o.Cluster = nil }},
		"it was handed over":          {change: func(o *Origin) { o.Cluster.Annotations[corev1alpha1.MovedToAnnotationKey] = "beta" }, want: true},
		"it was handed over, and is abandoned": {change: func(o *Origin) {
			o.Cluster.Annotations[corev1alpha1.MovedToAnnotationKey] = "beta"
			o.Migration.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseAborting
		}, want: true},
		"an earlier one of the name handed it over to another shard": {change: func(o *Origin) { o.Cluster.Annotations[corev1alpha1.MovedToAnnotationKey] = "gamma" }},
	} {
		t.Run(name, func(t *testing.T) {
			o := Origin{Shard: "alpha", Reference: modelReference, Migration: newMigration(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating), Cluster: &corev1alpha1.LogicalCluster{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1alpha1.MigratingAnnotationKey: modelReference}},
			}}
			conditionsv1alpha1.MarkTrue(o.Migration, migrationv1alpha1.PlacementAllowed)
			if tc.change != nil {
				tc.change(&o)
			}
			shard := "beta"
			if tc.shard != "" {
				shard = strings.Trim(tc.shard, "-")
			}
			if got := o.AnswersTo(shard); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestMayHandOver(t *testing.T) {
	const paused, migrating, moved = corev1alpha1.WritesPausedAnnotationKey, corev1alpha1.MigratingAnnotationKey, corev1alpha1.MovedToAnnotationKey
	for name, tc := range map[string]struct {
		annotations map[string]string
		token       string
		deleting    bool
		want        bool
	}{
		"during the pause":                {annotations: map[string]string{paused: "t", migrating: "r"}, token: "t", want: true},
		"without a pause and a token":     {annotations: map[string]string{migrating: "r"}},
		"a pause without a token":         {annotations: map[string]string{paused: "", migrating: "r"}},
		"after another pause has begun":   {annotations: map[string]string{paused: "u", migrating: "r"}, token: "t"},
		"by another migration":            {annotations: map[string]string{paused: "t", migrating: "s"}, token: "t"},
		"while it is being deleted":       {annotations: map[string]string{paused: "t", migrating: "r"}, token: "t", deleting: true},
		"it was handed over to somebody":  {annotations: map[string]string{paused: "t", migrating: "r", moved: "gamma"}, token: "t"},
		"it was handed over, by no value": {annotations: map[string]string{paused: "t", migrating: "r", moved: ""}, token: "t"},
	} {
		metadata := map[string]any{}
		if tc.deleting {
			metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		}
		err := mayHandOver(&storedCluster{object: map[string]any{"metadata": metadata}}, tc.annotations, "r", tc.token)
		if (err == nil) != tc.want || err != nil && !errors.Is(err, errConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAbove: the destination names the next child, and the shard that has it decides.
func TestAbove(t *testing.T) {
	top := newMigration(migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize)
	top.Annotations[logicalcluster.AnnotationKey], top.Annotations[movedPathAnnotation] = "home", "root:org"
	child := func(name, cluster string, phase migrationv1alpha1.LogicalClusterMigrationPhaseType) *migrationv1alpha1.LogicalClusterMigration {
		m := Home{Migration: top}.newChild(cluster)
		m.Name, m.UID, m.Status.Phase = name, types.UID(name), phase
		m.Annotations = map[string]string{logicalcluster.AnnotationKey: "home"}
		return m
	}
	moved := child("move-one", "one", migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
	running := child("move-two", "two", migrationv1alpha1.LogicalClusterMigrationPhaseMigrating)
	foreign := child("foreign", "other", migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
	foreign.OwnerReferences = nil
	next := child("move-next", "next", migrationv1alpha1.LogicalClusterMigrationPhasePreparing)
	all := []*migrationv1alpha1.LogicalClusterMigration{top, moved, running, foreign, next}
	for name, tc := range map[string]struct {
		owner, path string
		change      func(top, next *migrationv1alpha1.LogicalClusterMigration)
		want        bool
	}{
		"in the logical cluster":                    {owner: "moving", path: "root:else:x", want: true},
		"in a child that was moved":                 {owner: "one", path: "root:else:x", want: true},
		"in a child that is being moved":            {owner: "two", path: "root:else:x"},
		"in what another migration has moved":       {owner: "other", path: "root:else:x"},
		"below by its path":                         {owner: "there", path: "root:org:a:b", want: true},
		"beside, with a path that begins like that": {owner: "there", path: "root:organisation:a"},
		"the logical cluster itself":                {owner: "there", path: "root:org"},
		"that of another tenant":                    {owner: "there", path: "root:victim:x"},
		"without a path":                            {owner: "there"},
		"no path is known":                          {owner: "there", path: "root:org:a", change: func(top, _ *migrationv1alpha1.LogicalClusterMigration) { delete(top.Annotations, movedPathAnnotation) }},
		"the path of everything":                    {owner: "there", path: "root:org:a", change: func(top, _ *migrationv1alpha1.LogicalClusterMigration) { top.Annotations[movedPathAnnotation] = "root" }},
		"the migration includes no children": {owner: "moving", change: func(top, _ *migrationv1alpha1.LogicalClusterMigration) {
			delete(top.Annotations, migrationv1alpha1.IncludeChildrenAnnotationKey)
		}},
		"an earlier migration of the name": {owner: "moving", change: func(_, next *migrationv1alpha1.LogicalClusterMigration) { next.OwnerReferences[0].UID = "earlier" }},
	} {
		t.Run(name, func(t *testing.T) {
			copies := make([]*migrationv1alpha1.LogicalClusterMigration, len(all))
			for i, one := range all {
				copies[i] = one.DeepCopy()
			}
			changed := copies[len(copies)-1]
			if tc.change != nil {
				tc.change(copies[0], changed)
			}
			o := Origin{Shard: "alpha", Reference: "home:move-next", Migration: changed, Above: aboveOf(changed, copies), Cluster: &corev1alpha1.LogicalCluster{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: "next", corev1alpha1.LogicalClusterPathAnnotationKey: tc.path}},
				Spec:       corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{Cluster: tc.owner}},
				Status:     corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
			}}
			if got := o.refusal(); (got == nil) != tc.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestRefusedByOrigin(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Origin)
		step   OriginStep
	}{
		"accepted":                  {nil, OriginAccept},
		"it could end unseen":       {func(o *Origin) { o.Migration.Finalizers = nil }, OriginWaits},
		"it contains migrations":    {func(o *Origin) { o.Holds = "other" }, OriginWaits},
		"root belongs to its shard": {func(o *Origin) { o.Cluster.Annotations[logicalcluster.AnnotationKey] = "root" }, OriginWaits},
	} {
		w := newWorld(1)
		o := w.originState()
		if tc.change != nil {
			tc.change(&o)
		}
		if got := o.Step(); got != tc.step {
			t.Errorf("%s: %q", name, got)
		}
	}
	m := newMigration(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating)
	conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.PlacementAllowed)
	for cluster, want := range map[string]DestinationStep{"moving": DestinationCopy, "root": DestinationWaits, "system:admin": DestinationWaits} {
		m.Spec.LogicalCluster = cluster
		if got := (Destination{Shard: "beta", Reference: modelReference, Migration: m}).Step(); got != want {
			t.Errorf("the destination of %s: %q", cluster, got)
		}
	}
}

func newTestAcceptance() *acceptance {
	registry := storage.NewRegistry(storage.Locality{})
	for _, resource := range []struct {
		gvr        schema.GroupVersionResource
		prefix     string
		namespaced bool
		new        func() runtime.Object
	}{
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "/core/configmaps", true, func() runtime.Object { return &core.ConfigMap{} }},
		{logicalClusters.WithVersion("v1alpha1"), "/core.kcp.io/logicalclusters", false, func() runtime.Object { return &corev1alpha1.LogicalCluster{} }},
		{migrations.WithVersion("v1alpha1"), "/migration.kcp.io/logicalclustermigrations", false, func() runtime.Object { return &migrationv1alpha1.LogicalClusterMigration{} }},
	} {
		registry.Add(&storage.Resource{GVR: resource.gvr, Prefix: resource.prefix, Namespaced: resource.namespaced, Store: &genericregistry.Store{NewFunc: resource.new}})
	}
	return newAcceptance(registry)
}

// TestAcceptedEntries: the destination stores what it has asked for, and can read.
func TestAcceptedEntries(t *testing.T) {
	accepts := newTestAcceptance()
	const migration = `{"apiVersion":"migration.kcp.io/v1alpha1","kind":"LogicalClusterMigration","metadata":{"name":"m"},"status":{"phase":"PHASE"}}`
	const custom = "/example.com/ships/customresources"
	for name, tc := range map[string]struct {
		resource, name, value string
		want                  bool
	}{
		"an object":                     {"/core/configmaps", "ns/a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"a"}}`, true},
		"an object of another name":     {"/core/configmaps", "ns/a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"b"}}`, false},
		"an object without namespace":   {"/core/configmaps", "a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, false},
		"an object of another kind":     {"/core/configmaps", "ns/a", `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"a"}}`, false},
		"an unknown version":            {"/core/configmaps", "ns/a", `{"apiVersion":"v9","kind":"ConfigMap","metadata":{"namespace":"ns","name":"a"}}`, false},
		"no object":                     {"/core/configmaps", "ns/a", `{`, false},
		"nothing":                       {"/core/configmaps", "ns/a", ``, false},
		"too deep":                      {"/core/configmaps", "ns/a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"a"},"x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, false},
		"the path of root":              {"/core/configmaps", "ns/a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"a","annotations":{"kcp.io/path":"root"}}}`, false},
		"the LogicalCluster":            {"/core.kcp.io/logicalclusters", "cluster", `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster"}}`, false},
		"a migration that has ended":    {"/migration.kcp.io/logicalclustermigrations", "m", strings.Replace(migration, "PHASE", "Completed", 1), true},
		"a migration that runs":         {"/migration.kcp.io/logicalclustermigrations", "m", strings.Replace(migration, "PHASE", "Migrating", 1), false},
		"a custom resource":             {custom, "one", `{"apiVersion":"example.com/v1","kind":"Ship","metadata":{"name":"one"}}`, true},
		"one of another group":          {custom, "one", `{"apiVersion":"other.com/v1","kind":"Ship","metadata":{"name":"one"}}`, false},
		"a custom one without a kind":   {custom, "one", `{"metadata":{"name":"one"}}`, false},
		"a custom one of another name":  {custom, "one", `{"apiVersion":"example.com/v1","kind":"Ship","metadata":{"name":"two"}}`, false},
		"a custom one that is too deep": {custom, "one", `{"apiVersion":"example.com/v1","kind":"Ship","metadata":{"name":"one"},"x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			key := transfer.Key{Resource: tc.resource, Name: tc.name}
			response := &entriesResponse{Entries: []transfer.Entry{{Version: transfer.Version{Key: key}, Value: []byte(tc.value)}}}
			if err := accepts.check([]transfer.Key{key}, response); (err == nil) != tc.want {
				t.Errorf("got %v", err)
			}
		})
	}
	a, b, c := transfer.Key{Resource: "/core/configmaps", Name: "ns/a"}, transfer.Key{Resource: "/core/configmaps", Name: "ns/b"}, transfer.Key{Resource: "/core/configmaps", Name: "ns/c"}
	entry := func(key transfer.Key) transfer.Entry {
		return transfer.Entry{Version: transfer.Version{Key: key}, Value: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"` + key.Name[3:] + `"}}`)}
	}
	for name, tc := range map[string]struct {
		entries []transfer.Entry
		rest    []transfer.Key
		want    bool
	}{
		"one has gone":                     {[]transfer.Entry{entry(a)}, nil, true},
		"a page":                           {[]transfer.Entry{entry(a)}, []transfer.Key{b}, true},
		"no progress":                      {nil, []transfer.Key{a, b}, false},
		"what was not requested":           {[]transfer.Entry{entry(c)}, nil, false},
		"a rest that was not requested":    {[]transfer.Entry{entry(a)}, []transfer.Key{c}, false},
		"an object twice":                  {[]transfer.Entry{entry(a), entry(a)}, nil, false},
		"an object that is in the rest":    {[]transfer.Entry{entry(a)}, []transfer.Key{a}, false},
		"both are gone, which is progress": {nil, nil, true},
	} {
		if err := accepts.check([]transfer.Key{a, b}, &entriesResponse{Entries: tc.entries, Rest: tc.rest}); (err == nil) != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHandedOver: the destination serves a LogicalCluster only if it is the one that moves, in a state in which it may.
func TestHandedOver(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1alpha1.LogicalCluster, *handOverResponse)
		raw    string
		want   bool
	}{
		"the LogicalCluster":                       {want: true},
		"without the annotation, as kcp stores it": {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) { c.Annotations = nil }, want: true},
		"that of another one": {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) {
			c.Annotations[logicalcluster.AnnotationKey] = "victim"
		}},
		"another name": {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) { c.Name = "x" }},
		"another kind": {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) { c.Kind = "Shard" }},
		"no UID":       {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) { c.UID = "" }},
		"no owner":     {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) { c.Spec.Owner = nil }},
		"it initializes": {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) {
			c.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
		}},
		"it has initializers": {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) {
			c.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{"x"}
		}},
		"it is being deleted": {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) {
			c.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}},
		"it is inactive": {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) {
			c.Status.Phase = corev1alpha1.LogicalClusterPhaseInactive
		}, want: true},
		"the path of root": {change: func(c *corev1alpha1.LogicalCluster, _ *handOverResponse) {
			c.Annotations[logicalcluster.PathAnnotationKey] = "root"
		}},
		"no epoch":                  {change: func(_ *corev1alpha1.LogicalCluster, r *handOverResponse) { r.Epoch = 0 }},
		"a negative epoch":          {change: func(_ *corev1alpha1.LogicalCluster, r *handOverResponse) { r.Epoch = -1 }},
		"no shard of the Workspace": {change: func(_ *corev1alpha1.LogicalCluster, r *handOverResponse) { r.ParentShard = "" }},
		"nothing":                   {raw: "null"},
		"no object":                 {raw: "["},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &corev1alpha1.LogicalCluster{
				TypeMeta:   metav1.TypeMeta{APIVersion: corev1alpha1.SchemeGroupVersion.String(), Kind: "LogicalCluster"},
				ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, UID: "u", Annotations: map[string]string{logicalcluster.AnnotationKey: "moving"}},
				Spec:       corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{Cluster: "root"}},
				Status:     corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
			}
			handed := &handOverResponse{Epoch: 1, ParentShard: "root"}
			if tc.change != nil {
				tc.change(cluster, handed)
			}
			encoded, err := json.Marshal(cluster)
			if err != nil {
				t.Fatal(err)
			}
			if handed.Cluster = encoded; tc.raw != "" {
				handed.Cluster = []byte(tc.raw)
			}
			if _, err := parseHanded(logicalcluster.MustParseName("moving"), handed); (err == nil) != tc.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestNoRedirects: an origin cannot have the destination ask another shard with its certificate.
func TestNoRedirects(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, other.URL, http.StatusTemporaryRedirect)
	}))
	defer origin.Close()
	client, err := newClient(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{http: client, address: origin.URL}
	defer p.close()
	if _, err := post[entriesResponse](t.Context(), p, "/", entriesRequest{}); err == nil || asked {
		t.Errorf("the other shard was asked: %t, %v", asked, err)
	}
	if client.Timeout == 0 {
		t.Error("an origin that does not answer is waited for")
	}
}
