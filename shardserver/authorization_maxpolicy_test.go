package shardserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestMaximalPermissionPolicy binds one export with a maximal permission policy and one without. Every user
// in the test is cluster-admin in the consumer's workspace.
func TestMaximalPermissionPolicy(t *testing.T) {
	shard := shardtesting.Start(t)
	provider := shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	consumer := shard.NewWorkspace(t, "root", "consumer").Spec.Cluster
	bounded, free := schema.GroupResource{Group: "bounded.io", Resource: "things"}, schema.GroupResource{Group: "free.io", Resource: "things"}
	boundedExport := shard.NewExport(t, provider, "bounded", bounded, "Thing", func(export *apisv1alpha2.APIExport) {
		export.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
	})
	freeExport := shard.NewExport(t, provider, "free", free, "Thing")
	shard.Bind(t, consumer, provider, "bounded")
	shard.Bind(t, consumer, provider, "free")

	providerConfig, consumerConfig := shardtesting.At(shard.Masters(t), provider), shardtesting.At(shard.Masters(t), consumer)
	subject := func(kind, name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	all := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}, {NonResourceURLs: []string{"/"}, Verbs: []string{"access"}}}
	grant(t, shard, consumerConfig, "everything", all, subject("Group", "system:authenticated"))
	grant(t, shard, providerConfig, "read", []rbacv1.PolicyRule{{APIGroups: []string{bounded.Group}, Resources: []string{"things"}, Verbs: []string{"list"}}},
		subject("User", "apis.kcp.io:binding:alice"), subject("Group", "apis.kcp.io:binding:staff"),
		subject("User", "apis.kcp.io:binding:system:kcp:serviceaccount:"+consumer+":default:robot"), subject("User", "plain"))
	grant(t, shard, providerConfig, "status", []rbacv1.PolicyRule{{APIGroups: []string{bounded.Group}, Resources: []string{"things/status"}, Verbs: []string{"update"}}},
		subject("User", "apis.kcp.io:binding:alice"))

	allowed := func(u authorizationv1.SubjectAccessReviewSpec, verb string, gr schema.GroupResource, subresource string) bool {
		t.Helper()
		u.Groups = append(u.Groups, "system:authenticated")
		u.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: verb, Group: gr.Group, Version: "v1", Resource: gr.Resource, Subresource: subresource, Namespace: "default"}
		answer, err := shard.Kubernetes(t, consumerConfig).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: u}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status.Allowed
	}
	newSpec := func(name string, groups ...string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{User: name, Groups: groups}
	}
	warrant, err := json.Marshal(authorization.Warrant{User: "alice", Groups: []string{"system:authenticated"}})
	if err != nil {
		t.Fatal(err)
	}
	warranted := newSpec("bob")
	warranted.Extra = map[string]authorizationv1.ExtraValue{authorization.WarrantExtraKey: {string(warrant)}}
	account := func(cluster string) authorizationv1.SubjectAccessReviewSpec {
		spec := newSpec("system:serviceaccount:default:robot")
		spec.Extra = map[string]authorizationv1.ExtraValue{authorization.ClusterNameExtraKey: {cluster}}
		return spec
	}
	for name, tc := range map[string]struct {
		user        authorizationv1.SubjectAccessReviewSpec
		verb        string
		resource    schema.GroupResource
		subresource string
		want        bool
	}{
		"user with permission":                                        {newSpec("alice"), "list", bounded, "", true},
		"user with permission, other verb":                            {newSpec("alice"), "create", bounded, "", false},
		"subresource with permission":                                 {newSpec("alice"), "update", bounded, "status", true},
		"subresource, other verb":                                     {newSpec("alice"), "patch", bounded, "status", false},
		"group with permission":                                       {newSpec("bob", "staff"), "list", bounded, "", true},
		"user without permission":                                     {newSpec("bob"), "list", bounded, "", false},
		"subject without the prefix":                                  {newSpec("plain"), "list", bounded, "", false},
		"service account with permission":                             {account(consumer), "list", bounded, "", true},
		"service account of the same name in another logical cluster": {account("other"), "list", bounded, "", false},
		"warrant with permission":                                     {warranted, "list", bounded, "", true},
		"warrant with permission, other verb":                         {warranted, "create", bounded, "", false},
		"export without a policy":                                     {newSpec("bob"), "create", free, "", true},
		"administrator of the installation":                           {newSpec("bob", authorization.GroupAdmin), "create", bounded, "", false},
		"bootstrapper":                                                {newSpec("bob", authorization.GroupBootstrapper), "create", bounded, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			if !tc.want && allowed(tc.user, tc.verb, tc.resource, tc.subresource) {
				t.Error("the request was allowed")
			}
			shardtesting.Eventually(t, "the permission", func(context.Context) error {
				if tc.want && !allowed(tc.user, tc.verb, tc.resource, tc.subresource) {
					return errors.New("the request was denied")
				}
				return nil
			})
		})
	}
	t.Run("claimed resources", func(t *testing.T) {
		alice, robot := &user.DefaultInfo{Name: "alice"}, &user.DefaultInfo{Name: "system:serviceaccount:default:robot"}
		for name, tc := range map[string]struct {
			user     user.Info
			verb     string
			resource schema.GroupResource
			identity string
			want     bool
		}{
			"user with permission":             {alice, "list", bounded, boundedExport.Status.IdentityHash, true},
			"user with permission, other verb": {alice, "create", bounded, boundedExport.Status.IdentityHash, false},
			"service account with permission":  {robot, "list", bounded, boundedExport.Status.IdentityHash, true},
			"export without a policy":          {alice, "create", free, freeExport.Status.IdentityHash, true},
			"unknown identity":                 {alice, "list", free, "unknown", false},
		} {
			t.Run(name, func(t *testing.T) {
				if got := isClaimAllowed(t, shard, consumer, tc.user, tc.verb, tc.resource, tc.identity); got != tc.want {
					t.Errorf("allowed = %v", got)
				}
			})
		}
	})
	t.Run("requests of users", func(t *testing.T) {
		as := rest.CopyConfig(consumerConfig)
		as.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated"}}
		things := dynamic.NewForConfigOrDie(as).Resource(bounded.WithVersion("v1")).Namespace("default")
		shardtesting.Eventually(t, "alice to be allowed to list", func(ctx context.Context) error {
			_, err := things.List(ctx, metav1.ListOptions{})
			return err
		})
		thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "bounded.io/v1", "kind": "Thing", "metadata": map[string]any{"name": "one"}}}
		if _, err := things.Create(t.Context(), thing, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("alice creates: %v", err)
		}
	})
	t.Run("impersonation does not yield permissions of the policy", func(t *testing.T) {
		as := shardtesting.At(rest.CopyConfig(shard.Admin(t)), consumer)
		as.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"staff", "system:authenticated"}}
		client := dynamic.NewForConfigOrDie(as)
		if _, err := client.Resource(bounded.WithVersion("v1")).Namespace("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("resource with a policy: %v", err)
		}
		if _, err := client.Resource(free.WithVersion("v1")).Namespace("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("resource without a policy: %v", err)
		}
		workspaces := schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
		if _, err := client.Resource(workspaces).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("permission of all authenticated users: %v", err)
		}
	})
	t.Run("requests of service accounts", func(t *testing.T) {
		kubernetes := shard.Kubernetes(t, consumerConfig)
		if _, err := kubernetes.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		token, err := kubernetes.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		as := rest.AnonymousClientConfig(consumerConfig)
		as.BearerToken = token.Status.Token
		client := dynamic.NewForConfigOrDie(as)
		if _, err := client.Resource(bounded.WithVersion("v1")).Namespace("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("list by the service account: %v", err)
		}
		if err := client.Resource(bounded.WithVersion("v1")).Namespace("default").Delete(t.Context(), "one", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("delete by the service account: %v", err)
		}
	})
}

// isClaimAllowed authorizes a request for a resource with an identity as a virtual workspace of the consumer's own
// export does.
func isClaimAllowed(t *testing.T, shard *shardtesting.Shard, exportCluster string, info user.Info, verb string, gr schema.GroupResource, identity string) bool {
	t.Helper()
	chain, err := authorization.New(authorization.Config{Registry: shard.Server.Registry, Bound: shard.Server.Bindings(), Exports: shard.Server.Exports()})
	if err != nil {
		t.Fatal(err)
	}
	attributes := authorizer.AttributesRecord{User: info, Verb: verb, APIGroup: gr.Group, APIVersion: "v1", Resource: gr.Resource, Namespace: "default", ResourceRequest: true}
	decision, _, err := chain.AuthorizeClaimed(t.Context(), logicalcluster.MustParseName(exportCluster), attributes, identity)
	if err != nil {
		t.Fatal(err)
	}
	return decision == authorizer.DecisionAllow
}

// grant binds subjects to rules by a ClusterRole of the same name.
func grant(t *testing.T, shard *shardtesting.Shard, config *rest.Config, name string, rules []rbacv1.PolicyRule, subjects ...rbacv1.Subject) {
	t.Helper()
	rbac := shard.Kubernetes(t, config).RbacV1()
	if _, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(fmt.Errorf("creating role %s: %w", name, err))
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: subjects}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(fmt.Errorf("binding role %s: %w", name, err))
	}
}
