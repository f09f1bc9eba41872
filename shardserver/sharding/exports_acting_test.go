package sharding_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// masters returns a client of system:masters that impersonates a user.
func (e *env) masters(t *testing.T, shard string) client.Client {
	return e.shards[shard].Client(t, e.shards[shard].Masters(t))
}

func (e *env) userConfig(t *testing.T, shard, user string) *rest.Config {
	config := rest.CopyConfig(e.shards[shard].Masters(t))
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return config
}

func (e *env) userClient(t *testing.T, shard, user string) client.Client {
	return e.shards[shard].Client(t, e.userConfig(t, shard, user))
}

// grant binds a ClusterRole to a user.
func (e *env) grant(t *testing.T, shard, cluster, name, role, user string) {
	t.Helper()
	create(t, e.masters(t, shard), cluster, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}

// grantRule creates a ClusterRole with one rule and binds it to a user, both with the same name.
func (e *env) grantRule(t *testing.T, shard, cluster, name, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	create(t, e.masters(t, shard), cluster, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}})
	e.grant(t, shard, cluster, name, name, user)
}

func create(t *testing.T, c client.Client, cluster string, object client.Object) {
	t.Helper()
	if err := c.Create(shardtesting.In(t.Context(), cluster), object); err != nil {
		t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.io/v1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "default"},
	}}
}

// widgets returns a client of a user for the widgets of a logical cluster.
func (e *env) widgets(t *testing.T, shard, user, cluster string) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(shardtesting.At(e.userConfig(t, shard, user), cluster)).Resource(widgets).Namespace("default")
}

// virtualWorkspace returns a resource in the virtual workspace of the export, over all logical clusters of a shard.
func (e *env) virtualWorkspace(t *testing.T, shard, user string, resource schema.GroupVersionResource) dynamic.ResourceInterface {
	config := e.userConfig(t, shard, user)
	config.Host = strings.TrimSuffix(config.Host, "/") + "/services/apiexport/" + e.provider + "/widgets/clusters/*"
	return dynamic.NewForConfigOrDie(config).Resource(resource)
}

func eventuallyCreate(t *testing.T, resource dynamic.ResourceInterface, name string) {
	t.Helper()
	shardtesting.Eventually(t, "widget "+name+" is created", func(ctx context.Context) error {
		_, err := resource.Create(ctx, widget(name), metav1.CreateOptions{})
		return err
	})
}

// eventuallyForbidden waits until a dry run is forbidden with an error that contains the text.
func eventuallyForbidden(t *testing.T, resource dynamic.ResourceInterface, name, message string) {
	t.Helper()
	shardtesting.Eventually(t, "widget "+name+" is refused", func(ctx context.Context) error {
		_, err := resource.Create(ctx, widget(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it is created")
		}
		if !(apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) || !strings.Contains(err.Error(), message) {
			return err
		}
		return nil
	})
}
