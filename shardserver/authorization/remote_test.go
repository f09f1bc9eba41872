package authorization_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacapi "k8s.io/kubernetes/pkg/apis/rbac"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/authorization/shardtest"
)

// fakeReplicas holds replicas of other shards, and an error if they are not synced.
type fakeReplicas struct {
	objects   map[schema.GroupResource][]metav1.Object
	notSynced error
}

func (f *fakeReplicas) Get(resource schema.GroupResource, cluster logicalcluster.Name, _, name string) (runtime.Object, bool) {
	for _, object := range f.List(resource, cluster) {
		if object.(metav1.Object).GetName() == name {
			return object, true
		}
	}
	return nil, false
}

func (f *fakeReplicas) List(resource schema.GroupResource, cluster logicalcluster.Name) []runtime.Object {
	var found []runtime.Object
	for _, object := range f.objects[resource] {
		if cluster.IsWildcard() || logicalcluster.Of(object) == cluster {
			found = append(found, object.(runtime.Object))
		}
	}
	return found
}

func (f *fakeReplicas) Watch(context.Context, schema.GroupResource) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (f *fakeReplicas) CheckSynced(schema.GroupResource) error { return f.notSynced }

// remoteObjects returns the replicas of a logical cluster that alice may access and whose exports she may bind.
func remoteObjects(cluster logicalcluster.Name) map[schema.GroupResource][]metav1.Object {
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster.String()}}
	}
	binding := shardtest.NewClusterRoleBinding("consumers", "consumers", shardtest.UserSubject("alice"))
	binding.ObjectMeta = at(binding.Name)
	return map[schema.GroupResource][]metav1.Object{
		corev1alpha1.Resource("logicalclusters"): {&corev1alpha1.LogicalCluster{
			ObjectMeta: at(corev1alpha1.LogicalClusterName), Status: corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
		}},
		rbacapi.Resource("clusterroles"): {&rbacapi.ClusterRole{ObjectMeta: at("consumers"), Rules: []rbacapi.PolicyRule{
			access, {Verbs: []string{"bind"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}},
		}}},
		rbacapi.Resource("clusterrolebindings"): {binding},
	}
}

func TestRemoteLogicalClusters(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, nil)
	s.Grant(t, clusterA, "alice", shardtest.UserSubject("alice"), access)
	shardtest.Eventually(t, func() bool {
		decision, _, err := s.Authorizer.Authorize(logicalcluster.With(t.Context(), clusterA), authorizer.AttributesRecord{User: newUser("alice"), Verb: "access", Path: "/"})
		return err == nil && decision == authorizer.DecisionAllow
	})
	bind := func(name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: newUser(name), Verb: "bind", APIGroup: "apis.kcp.io", Resource: "apiexports", Name: "widgets", ResourceRequest: true}
	}
	plain := func(ctx context.Context) context.Context { return ctx }
	for name, tc := range map[string]struct {
		cluster   logicalcluster.Name
		mark      func(context.Context) context.Context
		notSynced error
		user      string
		allowed   bool
		wantErr   bool
	}{
		"deep review with permission":                         {cluster: clusterB, mark: authorization.WithDeepSAR, user: "alice", allowed: true},
		"internal check with permission and access":           {cluster: clusterB, mark: authorization.WithRemote, user: "alice", allowed: true},
		"deep review without permission":                      {cluster: clusterB, mark: authorization.WithDeepSAR, user: "bob"},
		"request":                                             {cluster: clusterB, mark: plain, user: "alice"},
		"local logical cluster ignores replicas":              {cluster: clusterA, mark: authorization.WithDeepSAR, user: "alice"},
		"deep review while replicas are not synced":           {cluster: clusterB, mark: authorization.WithDeepSAR, user: "bob", notSynced: errors.New("the cache is unavailable"), wantErr: true},
		"internal check while replicas are not synced":        {cluster: logicalcluster.MustParseName("c"), mark: authorization.WithRemote, user: "alice", notSynced: errors.New("the cache is unavailable"), wantErr: true},
		"local logical cluster while replicas are not synced": {cluster: clusterA, mark: authorization.WithDeepSAR, user: "alice", notSynced: errors.New("the cache is unavailable")},
	} {
		t.Run(name, func(t *testing.T) {
			objects := remoteObjects(clusterB)
			for resource, more := range remoteObjects(clusterA) { // a shard publishes objects of a logical cluster that is not its own
				objects[resource] = append(objects[resource], more...)
			}
			s.Registry.SetRemoteStore(&fakeReplicas{objects: objects, notSynced: tc.notSynced})
			decision, _, err := s.Authorizer.Authorize(tc.mark(logicalcluster.With(t.Context(), tc.cluster)), bind(tc.user))
			if (err != nil) != tc.wantErr {
				t.Errorf("got error %v, want one: %t", err, tc.wantErr)
			}
			if allowed := decision == authorizer.DecisionAllow; allowed != tc.allowed {
				t.Errorf("allowed = %t, want %t", allowed, tc.allowed)
			}
		})
	}
}

// TestAuthorizeClaimedNotSynced covers claimed resources while the replicas of exports are not synced: whether an owner
// sets a maximal permission policy cannot be determined then.
func TestAuthorizeClaimedNotSynced(t *testing.T) {
	s := shardtest.Start(t)
	locate := func(context.Context, logicalcluster.Path) (logicalcluster.Name, error) { return clusterA, nil }
	chain, err := authorization.New(authorization.Config{
		Registry: s.Registry, Bound: bindings.NewIndex(s.Registry), Exports: apiindex.NewResolver(s.Registry, locate),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Registry.SetRemoteStore(&fakeReplicas{notSynced: errors.New("the cache is unavailable")})
	if decision, _, err := chain.AuthorizeClaimed(t.Context(), clusterA, getConfigMap(newUser("alice")), "1d"); err == nil || decision == authorizer.DecisionAllow {
		t.Errorf("got decision %v, error %v; want no opinion and an error", decision, err)
	}
	s.Registry.SetRemoteStore(&fakeReplicas{})
	if decision, _, err := chain.AuthorizeClaimed(t.Context(), clusterA, getConfigMap(newUser("alice")), "1d"); err != nil || decision != authorizer.DecisionDeny {
		t.Errorf("got decision %v, error %v; want it denied, as the identity has no owner", decision, err)
	}
}
