// Package admissiontest contains what tests of plug-ins share: a shard with objects in memory, requests, and objects.
package admissiontest

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
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
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
	if f.resource == rules.APIExports || f.resource.Group == adminv1alpha1.GroupName || f.resource.Group == admissionregistration.GroupName || f.resource.Resource == "resourcequotas" {
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

// Shard is the content of a test's shard.
type Shard struct {
	// Registry has the stores; a test may replace it.
	Registry *storage.Registry
	stores   map[schema.GroupResource]*fakeStore
	// allowed lists "<user> <verb> <cluster>/<resource>/<name>" of what the authorizer allows. It denies other
	// requests, and all requests in a context that is not marked as deep. Masters may do everything.
	allowed map[string]bool
}

// NewShard returns a shard without objects.
func NewShard() *Shard {
	s := &Shard{Registry: storage.NewRegistry(kcpcore.Locality), stores: map[schema.GroupResource]*fakeStore{}, allowed: map[string]bool{}}
	for _, resource := range []schema.GroupResource{
		rules.Namespaces, rules.LogicalClusters, rules.Workspaces, rules.WorkspaceTypes, rules.APIExports, rules.APIResourceSchemas,
		admissionregistration.Resource("mutatingwebhookconfigurations"), admissionregistration.Resource("validatingwebhookconfigurations"),
		adminv1alpha1.Resource("permissionclaimpolicies"),
		{Resource: "resourcequotas"}, admissionregistration.Resource("mutatingadmissionpolicybindings"), admissionregistration.Resource("validatingadmissionpolicybindings"),
	} {
		s.stores[resource] = &fakeStore{resource: resource, cached: map[string]runtime.Object{}, latest: map[string]runtime.Object{}}
		s.Registry.Add(&storage.Resource{GVR: resource.WithVersion("v1alpha1"), Store: s.stores[resource]})
	}
	return s
}

// Add stores an object; cached is whether the watch cache has observed it.
func (s *Shard) Add(cluster string, obj runtime.Object, cached bool) *Shard {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	var resource schema.GroupResource
	switch obj.(type) {
	case *core.Namespace:
		resource = rules.Namespaces
	case *corev1alpha1.LogicalCluster:
		resource = rules.LogicalClusters
	case *tenancyv1alpha1.Workspace:
		resource = rules.Workspaces
	case *tenancyv1alpha1.WorkspaceType:
		resource = rules.WorkspaceTypes
	case *apisv1alpha2.APIExport:
		resource = rules.APIExports
	}
	key := cluster + "/" + accessor.GetName()
	s.stores[resource].latest[key] = obj
	if cached {
		s.stores[resource].cached[key] = obj
	}
	return s
}

// RemoveNamespace removes a namespace from the storage; the watch cache has not observed it.
func (s *Shard) RemoveNamespace(cluster, name string) *Shard {
	delete(s.stores[rules.Namespaces].latest, cluster+"/"+name)
	return s
}

// Cached returns an object that the watch cache has.
func (s *Shard) Cached(resource schema.GroupResource, cluster, name string) runtime.Object {
	return s.stores[resource].cached[cluster+"/"+name]
}

// Cluster stores a LogicalCluster with annotations given as key, value, key, value.
func (s *Shard) Cluster(name string, annotations ...string) *Shard {
	obj := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Annotations: ToMap(annotations)}}
	return s.Add(name, obj, true)
}

// Workspace stores a workspace that is ready.
func (s *Shard) Workspace(parent, name, cluster string) *Shard {
	obj := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	obj.Spec.Cluster = cluster
	obj.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	return s.Add(parent, obj, true)
}

// Allow permits what the entries name: "<user> <verb> <cluster>/<resource>/<name>".
func (s *Shard) Allow(entries ...string) *Shard {
	for _, entry := range entries {
		s.allowed[entry] = true
	}
	return s
}

type deepSARKey struct{}

// Config returns the configuration of admission over the state.
func (s *Shard) Config() rules.Config {
	types := workspacetype.NewResolver(workspacetype.NewConsistentReader(s.Registry, workspacetype.NewIndex(s.Registry)))
	return rules.Config{
		Registry:    s.Registry,
		Types:       types,
		Exports:     apiindex.NewResolver(s.Registry, types.Locate),
		WithDeepSAR: func(ctx context.Context) context.Context { return context.WithValue(ctx, deepSARKey{}, true) },
		Authorizer: authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			cluster, _ := logicalcluster.From(ctx)
			entry := a.GetUser().GetName() + " " + a.GetVerb() + " " + cluster.String() + "/" + a.GetResource() + "/" + a.GetName()
			if rules.IsMaster(a.GetUser()) || (ctx.Value(deepSARKey{}) == true && s.allowed[entry]) {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
	}
}

// Users of requests.
var (
	Alice  = &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"from": {"test"}}}
	Master = &user.DefaultInfo{Name: "shard-admin", Groups: []string{user.SystemPrivilegedGroup}}
)

// Member returns a user of a group.
func Member(group string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: "member", Groups: []string{group}}
}

// Request is one request to admission.
type Request struct {
	Version     string // of the request; v1alpha1 if empty
	Cluster     string
	Resource    schema.GroupResource
	Subresource string
	Namespace   string
	Name        string
	User        user.Info
	Operation   admission.Operation
	Object, Old runtime.Object
	DryRun      bool
}

// Attributes returns the attributes that the handlers pass to admission.
func (r Request) Attributes() admission.Attributes {
	version := cmp.Or(r.Version, "v1alpha1")
	return admission.NewAttributesRecord(r.Object, r.Old, schema.GroupVersionKind{Group: r.Resource.Group, Version: version}, r.Namespace, r.Name,
		r.Resource.WithVersion(version), r.Subresource, r.Operation, nil, r.DryRun, r.User)
}

// AdmitAndValidate runs a request through mutation, until an error, and validation.
func AdmitAndValidate(t *testing.T, plugin admission.Interface, q Request) error {
	t.Helper()
	if !plugin.Handles(q.Operation) {
		return nil
	}
	ctx := logicalcluster.With(context.Background(), logicalcluster.MustParseName(q.Cluster))
	a := q.Attributes()
	if mutating, ok := plugin.(admission.MutationInterface); ok {
		if err := mutating.Admit(ctx, a, nil); err != nil {
			return err
		}
	}
	return ValidateOnly(t, plugin, q)
}

// ValidateOnly runs a request through validation only, as if a later plug-in had produced the object.
func ValidateOnly(t *testing.T, plugin admission.Interface, q Request) error {
	t.Helper()
	ctx := logicalcluster.With(context.Background(), logicalcluster.MustParseName(q.Cluster))
	if validating, ok := plugin.(admission.ValidationInterface); ok && plugin.Handles(q.Operation) {
		return validating.Validate(ctx, q.Attributes(), nil)
	}
	return nil
}

// ToMap returns the map of key, value, key, value.
func ToMap(list []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}
