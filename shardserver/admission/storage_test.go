package admission

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	namespacestorage "k8s.io/kubernetes/pkg/registry/core/namespace/storage"
	"k8s.io/utils/ptr"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	tenancyapis "github.com/atoll-dev/atoll/shardserver/apis/tenancy"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// storageEnv is a shard's storage with the admission chain: real registries, watch caches and etcd.
type storageEnv struct {
	t        *testing.T
	chain    admission.Interface
	storages map[string]rest.Storage
}

// startStorageEnv runs etcd and the registries until the test ends.
func startStorageEnv(t *testing.T, permits ...string) *storageEnv {
	t.Helper()
	server := etcdtest.Start(t)

	backend := storagebackend.NewDefaultConfig("/registry", nil)
	server.Connect(&backend.Transport)
	options := restOptions{backend}
	storages := map[string]rest.Storage{}
	for _, install := range []func(generic.RESTOptionsGetter) (map[string]rest.Storage, error){kcpcore.Storages, tenancyapis.Storages} {
		installed, err := install(options)
		if err != nil {
			t.Fatal(err)
		}
		for name, s := range installed {
			storages[name] = s
		}
	}
	namespaceREST, _, _, err := namespacestorage.NewREST(options)
	if err != nil {
		t.Fatal(err)
	}
	storages["namespaces"] = namespaceREST
	for _, s := range storages {
		t.Cleanup(s.Destroy)
	}

	state := admissiontest.NewShard().Allow(permits...)
	state.Registry = storage.NewRegistry(kcpcore.Locality)
	for _, resource := range []schema.GroupResource{rules.Namespaces, rules.LogicalClusters, rules.Workspaces, rules.WorkspaceTypes} {
		state.Registry.Add(&storage.Resource{GVR: resource.WithVersion("v1alpha1"), Store: storages[resource.Resource].(storage.Store)})
	}
	config := state.Config()
	config.Types = workspacetype.NewResolver(workspacetype.NewConsistentReader(state.Registry, workspacetype.NewIndex(state.Registry)))
	config.Exports = apiindex.NewResolver(state.Registry, config.Types.Locate)
	config = withDynamic(t, config)
	// These plug-ins read resources that are not stored here.
	config.Disabled = sets.New("apis.kcp.io/MutatingWebhook", "KCPMutatingAdmissionPolicy", "KCPValidatingAdmissionPolicy", "apis.kcp.io/ValidatingWebhook", "KCPKubeResourceQuota")
	chain, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return &storageEnv{t, chain, storages}
}

type restOptions struct{ backend *storagebackend.Config }

func (o restOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	backend := *o.backend
	backend.Codec = legacyscheme.Codecs.LegacyCodec(schema.GroupVersion{Group: resource.Group, Version: versionOf(resource.Group)})
	return generic.RESTOptions{
		StorageConfig:  backend.ForResource(resource),
		Decorator:      storage.WithCache(storage.CacheOptions{}),
		ResourcePrefix: resource.Group + "/" + resource.Resource,
	}, nil
}

// versionOf returns the version of a group, of those in these tests.
func versionOf(group string) string {
	if group == "" {
		return "v1"
	}
	return "v1alpha1"
}

// requestContext returns the context of a request for a cluster-scoped resource, as the handlers create it.
func (s *storageEnv) requestContext(cluster string) context.Context {
	return request.WithNamespace(logicalcluster.With(s.t.Context(), logicalcluster.MustParseName(cluster)), "")
}

// create creates an object through admission and storage, in the order of the real handler.
func (s *storageEnv) create(cluster string, by user.Info, resource schema.GroupResource, obj runtime.Object) (runtime.Object, error) {
	ctx := request.WithRequestInfo(s.requestContext(cluster), &request.RequestInfo{APIGroup: resource.Group, APIVersion: versionOf(resource.Group), Resource: resource.Resource})
	name := obj.(metav1.Object).GetName()
	q := admissiontest.Request{Resource: resource, Name: name, User: by, Operation: admission.Create, Object: obj}
	if err := s.chain.(admission.MutationInterface).Admit(ctx, q.Attributes(), nil); err != nil {
		return nil, err
	}
	return s.storages[resource.Resource].(rest.Creater).Create(ctx, obj, rest.AdmissionToValidateObjectFunc(s.chain, q.Attributes(), nil), &metav1.CreateOptions{})
}

func (s *storageEnv) mustCreate(cluster string, by user.Info, resource schema.GroupResource, obj runtime.Object) runtime.Object {
	s.t.Helper()
	created, err := s.create(cluster, by, resource, obj)
	if err != nil {
		s.t.Fatalf("creating %s in %s: %v", resource, cluster, err)
	}
	return created
}

// updateStatus changes a status through admission and storage.
func (s *storageEnv) updateStatus(cluster string, by user.Info, resource schema.GroupResource, name string, change func(runtime.Object)) (runtime.Object, error) {
	ctx := s.requestContext(cluster)
	attributes := func(obj, old runtime.Object) admission.Attributes {
		return admissiontest.Request{Resource: resource, Subresource: "status", Name: name, User: by, Operation: admission.Update, Object: obj, Old: old}.Attributes()
	}
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		obj := old.DeepCopyObject()
		change(obj)
		return obj, nil
	}, func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		return obj, s.chain.(admission.MutationInterface).Admit(ctx, attributes(obj, old), nil)
	})
	updated, _, err := s.storages[resource.Resource+"/status"].(rest.Updater).Update(ctx, name, info, rest.ValidateAllObjectFunc,
		rest.AdmissionToValidateObjectUpdateFunc(s.chain, attributes(nil, nil), nil), false, &metav1.UpdateOptions{})
	return updated, err
}

// TestAdmissionWithStorage creates nested workspaces with types over real registries: writes do not wait for watch
// caches, and no read crosses a logical cluster.
func TestAdmissionWithStorage(t *testing.T) {
	s := startStorageEnv(t, "alice use root/workspacetypes/universal", "alice use c1/workspacetypes/own")
	logicalCluster := func(path, typed string) *corev1alpha1.LogicalCluster {
		c := admissiontest.LogicalCluster("", admissiontest.WithAnnotations(logicalcluster.PathAnnotationKey, path, admissiontest.TypeKey, typed, admissiontest.GroupsKey, "members"))
		c.Spec.CreatedBy = nil
		return c
	}

	created := s.mustCreate("root", admissiontest.Master, rules.LogicalClusters, logicalCluster("root", "root:root")).(*corev1alpha1.LogicalCluster)
	if !slices.Contains(created.Finalizers, corev1alpha1.LogicalClusterDeletionFinalizer) {
		t.Errorf("finalizers %v", created.Finalizers)
	}
	s.mustCreate("root", admissiontest.Master, rules.WorkspaceTypes, admissiontest.WorkspaceType("", "universal"))
	stored := s.mustCreate("root", admissiontest.Master, rules.WorkspaceTypes, admissiontest.WorkspaceType("forged", "root", admissiontest.Extending(admissiontest.TypeReference("root", "universal")), func(spec *tenancyv1alpha1.WorkspaceTypeSpec) {
		spec.DefaultChildWorkspaceType = ptr.To(admissiontest.TypeReference("root", "universal"))
	})).(*tenancyv1alpha1.WorkspaceType)
	if path := stored.Annotations[logicalcluster.PathAnnotationKey]; path != "root" {
		t.Errorf("the type is annotated with path %q", path)
	}

	w := s.mustCreate("root", admissiontest.Alice, rules.Workspaces, admissiontest.Workspace(func(w *tenancyv1alpha1.Workspace) { w.Spec.Type = nil })).(*tenancyv1alpha1.Workspace)
	if w.Spec.Type == nil || w.Spec.Type.String() != "root:universal" || w.Annotations[admissiontest.GroupsKey] != "members" || w.Annotations[admissiontest.OwnerKey] == "" {
		t.Errorf("the workspace has type %v and annotations %v", w.Spec.Type, w.Annotations)
	}

	if _, err := s.create("c1", admissiontest.Alice, rules.LogicalClusters, logicalCluster("root:team", "root:universal")); !apierrors.IsForbidden(err) {
		t.Errorf("a tenant created a LogicalCluster: %v", err)
	}
	if _, err := s.create("c1", admissiontest.Alice, rules.Workspaces, admissiontest.Workspace()); !apierrors.IsForbidden(err) {
		t.Errorf("a workspace was created in a logical cluster that does not exist: %v", err)
	}
	s.mustCreate("c1", admissiontest.Master, rules.LogicalClusters, logicalCluster("root:team", "root:universal"))
	s.mustCreate("c1", admissiontest.Alice, rules.WorkspaceTypes, admissiontest.WorkspaceType("", "own", admissiontest.Extending(admissiontest.TypeReference("root", "universal"))))
	if _, err := s.create("root", admissiontest.Alice, rules.Workspaces, typedWorkspace("below", "", "own")); !apierrors.IsForbidden(err) {
		t.Errorf("a type of another logical cluster was found by name: %v", err)
	}
	below := s.mustCreate("c1", admissiontest.Alice, rules.Workspaces, typedWorkspace("below", "", "own")).(*tenancyv1alpha1.Workspace)
	if below.Spec.Type.String() != "c1:own" { // root:team does not resolve to c1: the workspace was not scheduled
		t.Errorf("type %q", below.Spec.Type)
	}
	if _, err := s.create("c1", admissiontest.Alice, rules.Workspaces, typedWorkspace("odd", "root", "a/b")); !apierrors.IsForbidden(err) {
		t.Errorf("an invalid name: %v", err)
	}

	updated, err := s.updateStatus("c1", admissiontest.Master, rules.LogicalClusters, "cluster", func(obj runtime.Object) {
		obj.(*corev1alpha1.LogicalCluster).Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := updated.(*corev1alpha1.LogicalCluster); !slices.Equal(c.Status.Initializers, c.Spec.Initializers) || !slices.Equal(c.Status.Terminators, c.Spec.Terminators) {
		t.Errorf("status starts with %v and %v", c.Status.Initializers, c.Status.Terminators)
	}
	if _, err := s.updateStatus("c1", admissiontest.Alice, rules.LogicalClusters, "cluster", func(obj runtime.Object) {
		obj.(*corev1alpha1.LogicalCluster).Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	}); !apierrors.IsForbidden(err) {
		t.Errorf("a tenant ended initialization: %v", err)
	}
}

// TestNamespaceLifecycleWithStorage writes into a namespace right after its creation, and not into that of the same
// name in another logical cluster.
func TestNamespaceLifecycleWithStorage(t *testing.T) {
	s := startStorageEnv(t)
	configMap := admissiontest.Request{Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "team", Name: "thing", User: admissiontest.Alice, Operation: admission.Create, Object: &core.ConfigMap{}}

	s.mustCreate("c1", admissiontest.Alice, rules.Namespaces, &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	configMap.Cluster = "c1"
	if err := admissiontest.AdmitAndValidate(t, s.chain, configMap); err != nil {
		t.Error(err)
	}
	configMap.Cluster = "c2"
	if err := admissiontest.AdmitAndValidate(t, s.chain, configMap); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want 404", err)
	}
	remove := admissiontest.Request{Cluster: "c1", Resource: rules.Namespaces, Name: "default", User: admissiontest.Master, Operation: admission.Delete}
	if err := admissiontest.AdmitAndValidate(t, s.chain, remove); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want 403", err)
	}
}

func typedWorkspace(name, path, typed string) *tenancyv1alpha1.Workspace {
	return admissiontest.Workspace(func(w *tenancyv1alpha1.Workspace) {
		w.Name, w.Spec.Type = name, ptr.To(admissiontest.TypeReference(path, typed))
	})
}
