package admission

import (
	"cmp"
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/core"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// fakeStore is the part of a registry that admission reads: objects by logical cluster and name. Like a real one it
// reads from a cache for resource version "0"; objects in Latest only have not reached the cache yet.
type fakeStore struct {
	rest.TableConvertor
	resource schema.GroupResource
	cached   map[string]runtime.Object
	latest   map[string]runtime.Object
}

func (*fakeStore) New() runtime.Object     { return nil }
func (*fakeStore) Destroy()                {}
func (*fakeStore) NewList() runtime.Object { return nil }

// List returns an empty list for configurations of tenants, exports and policies of claims only, which do not exist in these tests.
func (f *fakeStore) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	if f.resource == apiExports || f.resource.Group == adminv1alpha1.GroupName || f.resource.Group == admissionregistration.GroupName || f.resource.Resource == "resourcequotas" {
		return &metav1.List{}, nil
	}
	return nil, errors.New("admission is not expected to list")
}

func (*fakeStore) Watch(context.Context, *internalversion.ListOptions) (watch.Interface, error) {
	return nil, errors.New("admission is not expected to watch")
}

func (f *fakeStore) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return nil, errors.New("no logical cluster in the request")
	}
	if namespace := request.NamespaceValue(ctx); namespace != "" {
		return nil, errors.New("admission reads cluster-scoped objects only")
	}
	from := f.latest
	if options.ResourceVersion == "0" {
		from = f.cached
	}
	obj, ok := from[cluster.String()+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(f.resource, name)
	}
	return obj, nil
}

// fakeShard is the content of a test's shard.
type fakeShard struct {
	registry *storage.Registry
	stores   map[schema.GroupResource]*fakeStore
	// allowed lists "<user> <verb> <cluster>/<resource>/<name>" of what the authorizer allows. It denies other
	// requests, and all requests in a context that is not marked as deep. Masters may do everything.
	allowed map[string]bool
}

func newFakeShard() *fakeShard {
	s := &fakeShard{registry: storage.NewRegistry(kcpcore.Locality), stores: map[schema.GroupResource]*fakeStore{}, allowed: map[string]bool{}}
	for _, resource := range []schema.GroupResource{
		namespaces, logicalClusters, workspaces, workspaceTypes, apiExports, apiResourceSchemas,
		admissionregistration.Resource("mutatingwebhookconfigurations"), admissionregistration.Resource("validatingwebhookconfigurations"),
		adminv1alpha1.Resource("permissionclaimpolicies"),
		{Resource: "resourcequotas"}, admissionregistration.Resource("mutatingadmissionpolicybindings"), admissionregistration.Resource("validatingadmissionpolicybindings"),
	} {
		s.stores[resource] = &fakeStore{resource: resource, cached: map[string]runtime.Object{}, latest: map[string]runtime.Object{}}
		s.registry.Add(&storage.Resource{GVR: resource.WithVersion("v1alpha1"), Store: s.stores[resource]})
	}
	return s
}

// add stores an object; cached is whether the watch cache has observed it.
func (s *fakeShard) add(cluster string, obj runtime.Object, cached bool) *fakeShard {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	var resource schema.GroupResource
	switch obj.(type) {
	case *core.Namespace:
		resource = namespaces
	case *corev1alpha1.LogicalCluster:
		resource = logicalClusters
	case *tenancyv1alpha1.Workspace:
		resource = workspaces
	case *tenancyv1alpha1.WorkspaceType:
		resource = workspaceTypes
	case *apisv1alpha2.APIExport:
		resource = apiExports
	}
	key := cluster + "/" + accessor.GetName()
	s.stores[resource].latest[key] = obj
	if cached {
		s.stores[resource].cached[key] = obj
	}
	return s
}

// cluster stores a LogicalCluster with annotations given as key, value, key, value.
func (s *fakeShard) cluster(name string, annotations ...string) *fakeShard {
	obj := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Annotations: toMap(annotations)}}
	return s.add(name, obj, true)
}

func (s *fakeShard) workspace(parent, name, cluster string) *fakeShard {
	obj := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	obj.Spec.Cluster = cluster
	obj.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	return s.add(parent, obj, true)
}

func (s *fakeShard) allow(entries ...string) *fakeShard {
	for _, entry := range entries {
		s.allowed[entry] = true
	}
	return s
}

type deepSARKey struct{}

// config returns the configuration of admission over the state.
func (s *fakeShard) config() Config {
	types := workspacetype.NewResolver(workspacetype.NewConsistentReader(s.registry, workspacetype.NewIndex(s.registry)))
	return Config{
		Registry:    s.registry,
		Types:       types,
		Exports:     apiindex.NewResolver(s.registry, types.Locate),
		WithDeepSAR: func(ctx context.Context) context.Context { return context.WithValue(ctx, deepSARKey{}, true) },
		Authorizer: authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			cluster, _ := logicalcluster.From(ctx)
			entry := a.GetUser().GetName() + " " + a.GetVerb() + " " + cluster.String() + "/" + a.GetResource() + "/" + a.GetName()
			if isMaster(a.GetUser()) || (ctx.Value(deepSARKey{}) == true && s.allowed[entry]) {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
	}
}

var (
	alice  = &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"from": {"test"}}}
	master = &user.DefaultInfo{Name: "shard-admin", Groups: []string{user.SystemPrivilegedGroup}}
)

func member(group string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: "member", Groups: []string{group}}
}

// testRequest is one request to admission.
type testRequest struct {
	version     string // of the request; v1alpha1 if empty
	cluster     string
	resource    schema.GroupResource
	subresource string
	namespace   string
	name        string
	user        user.Info
	operation   admission.Operation
	obj, old    runtime.Object
	dryRun      bool
}

func (t testRequest) attributes() admission.Attributes {
	version := cmp.Or(t.version, "v1alpha1")
	return admission.NewAttributesRecord(t.obj, t.old, schema.GroupVersionKind{Group: t.resource.Group, Version: version}, t.namespace, t.name,
		t.resource.WithVersion(version), t.subresource, t.operation, nil, t.dryRun, t.user)
}

// admitAndValidate runs a request through mutation, until an error, and validation.
func admitAndValidate(t *testing.T, plugin admission.Interface, q testRequest) error {
	t.Helper()
	if !plugin.Handles(q.operation) {
		return nil
	}
	ctx := logicalcluster.With(context.Background(), logicalcluster.MustParseName(q.cluster))
	a := q.attributes()
	if mutating, ok := plugin.(admission.MutationInterface); ok {
		if err := mutating.Admit(ctx, a, nil); err != nil {
			return err
		}
	}
	return validateOnly(t, plugin, q)
}

// validateOnly runs a request through validation only, as if a later plug-in had produced the object.
func validateOnly(t *testing.T, plugin admission.Interface, q testRequest) error {
	t.Helper()
	ctx := logicalcluster.With(context.Background(), logicalcluster.MustParseName(q.cluster))
	if validating, ok := plugin.(admission.ValidationInterface); ok && plugin.Handles(q.operation) {
		return validating.Validate(ctx, q.attributes(), nil)
	}
	return nil
}

func toMap(list []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}
