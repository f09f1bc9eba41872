package shards

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// TestPartialTypesDecodeAPITypes encodes objects of the API types and decodes them as a watch does.
func TestPartialTypesDecodeAPITypes(t *testing.T) {
	decode := func(obj runtime.Object, gvk metav1.TypeMeta) runtime.Object {
		t.Helper()
		obj.GetObjectKind().SetGroupVersionKind(gvk.GroupVersionKind())
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		out, err := runtime.Decode(newSerializer().SupportedMediaTypes()[0].Serializer, data)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	annotations := map[string]string{logicalcluster.AnnotationKey: "org1"}

	ws := &tenancyv1alpha1.Workspace{}
	ws.Name, ws.Annotations = "team", map[string]string{logicalcluster.AnnotationKey: "org1", corev1alpha1.ShardAnnotationKey: "beta"}
	ws.Spec.Cluster = "team1"
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseUnavailable
	got, err := toWorkspace(decode(ws, metav1.TypeMeta{APIVersion: tenancyVersion.String(), Kind: "Workspace"}).(*workspaceObject))
	want := index.Workspace{Parent: logicalcluster.MustParseName("org1"), Name: "team", Cluster: logicalcluster.MustParseName("team1"), Shard: "beta", Unavailable: true}
	if err != nil || got != want {
		t.Errorf("workspace: %+v, %v", got, err)
	}

	mount := &tenancyv1alpha1.Workspace{}
	mount.Name, mount.Annotations = "mount", annotations
	mount.Spec.URL = "https://mount.example"
	mount.Spec.Mount = &tenancyv1alpha1.Mount{}
	mount.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	got, err = toWorkspace(decode(mount, metav1.TypeMeta{APIVersion: tenancyVersion.String(), Kind: "Workspace"}).(*workspaceObject))
	want = index.Workspace{Parent: logicalcluster.MustParseName("org1"), Name: "mount", Mount: "https://mount.example"}
	if err != nil || got != want {
		t.Errorf("mount: %+v, %v", got, err)
	}

	shard := &corev1alpha1.Shard{}
	shard.Name, shard.Spec.BaseURL = "alpha", "https://alpha.example"
	if got := decode(shard, metav1.TypeMeta{APIVersion: coreVersion.String(), Kind: "Shard"}).(*shardObject); got.Name != "alpha" || got.Spec.BaseURL != shard.Spec.BaseURL {
		t.Errorf("shard: %+v", got)
	}

	for annotation, wantCluster := range map[string]index.Cluster{
		corev1alpha1.MovedToAnnotationKey:  {Name: logicalcluster.MustParseName("org1"), Type: "root:x", MovedTo: "beta"},
		corev1alpha1.ArrivingAnnotationKey: {Name: logicalcluster.MustParseName("org1"), Type: "root:x", Arriving: true},
	} {
		cluster := &corev1alpha1.LogicalCluster{}
		cluster.Name, cluster.Annotations = "cluster", map[string]string{
			logicalcluster.AnnotationKey: "org1", corev1alpha1.LogicalClusterTypeAnnotationKey: "root:x", annotation: "beta",
		}
		gotCluster, err := toCluster(decode(cluster, metav1.TypeMeta{APIVersion: coreVersion.String(), Kind: "LogicalCluster"}))
		if err != nil || gotCluster != wantCluster {
			t.Errorf("logical cluster with %s: %+v, %v", annotation, gotCluster, err)
		}
	}
}

func TestToWorkspace(t *testing.T) {
	type change func(*workspaceObject)
	for name, tc := range map[string]struct {
		change   change
		routable bool
		fails    bool
	}{
		"a ready workspace is routable":             {func(o *workspaceObject) {}, true, false},
		"an initializing one is":                    {func(o *workspaceObject) { o.Status.Phase = "Initializing" }, true, false},
		"a deleting one is":                         {func(o *workspaceObject) { o.Status.Phase = "Deleting" }, true, false},
		"one in phase Scheduling is not":            {func(o *workspaceObject) { o.Status.Phase = "Scheduling" }, false, false},
		"one without a phase is not":                {func(o *workspaceObject) { o.Status.Phase = "" }, false, false},
		"one with neither cluster nor mount is not": {func(o *workspaceObject) { o.Spec.Cluster = "" }, false, false},
		"one with a URL only is no mount":           {func(o *workspaceObject) { o.Spec.Cluster, o.Spec.URL = "", "https://x" }, false, false},
		"a mount without a URL is not":              {func(o *workspaceObject) { o.Spec.Cluster, o.Spec.Mount = "", &struct{}{} }, false, false},
		"an unavailable mount without a URL is": {func(o *workspaceObject) {
			o.Spec.Cluster, o.Spec.Mount, o.Status.Phase = "", &struct{}{}, "Unavailable"
		}, true, false},
		"one without the cluster annotation is an error": {func(o *workspaceObject) { o.Annotations = nil }, false, true},
		"one with an invalid cluster name is an error":   {func(o *workspaceObject) { o.Spec.Cluster = "../x" }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &workspaceObject{}
			o.Name, o.Annotations = "w", map[string]string{logicalcluster.AnnotationKey: "root"}
			o.Spec.Cluster, o.Status.Phase = "c1", "Ready"
			tc.change(o)
			w, err := toWorkspace(o)
			if (err != nil) != tc.fails || w.Routable() != tc.routable {
				t.Errorf("%+v, %v", w, err)
			}
		})
	}
}

func TestTrimClusterPath(t *testing.T) {
	for in, want := range map[string]string{
		"https://a:6443":                      "https://a:6443",
		"https://a:6443/":                     "https://a:6443",
		"https://a:6443/clusters/root":        "https://a:6443",
		"https://a:6443/base/clusters/root:x": "https://a:6443/base",
	} {
		if got := TrimClusterPath(in); got != want {
			t.Errorf("ServerOf(%q) = %q, want %q", in, got, want)
		}
	}
}
