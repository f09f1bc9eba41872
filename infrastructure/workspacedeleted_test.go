package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testProviderDeleted deletes the provider's workspace with Templates, Catalogues and instances: the provider removes all of them, and the
// workspace is gone.
func (e *instancesEnv) testProviderDeleted(t *testing.T) {
	e.createCatalogue(t)
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: "redis"}, &infrastructurev1alpha1.Template{}); err != nil { // unless earlier tests have created it
		e.offer(t, "redis", "Redis", "basic")
	}
	e.offer(t, "vault", "Vault", "premium")
	silver := e.shard.NewWorkspace(t, "root", "silver").Spec.Cluster
	e.shard.Bind(t, silver, e.provider, premium)
	e.provision(t, e.second, "last", "small")
	e.waitData(t, e.second, "redis-last", "small")
	e.provisionVault(t, silver, "last")

	root := e.shard.Client(t, e.shard.Admin(t))
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "provider"}}
	if err := root.Delete(shardtesting.In(t.Context(), "root"), workspace); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the workspace of the provider to be gone", func(ctx context.Context) error {
		err := root.Get(shardtesting.In(ctx, "root"), client.ObjectKeyFromObject(workspace), workspace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		cluster := &corev1alpha1.LogicalCluster{}
		if failed := root.Get(shardtesting.In(ctx, e.provider), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster); failed != nil {
			return errors.Join(err, failed)
		}
		var templates infrastructurev1alpha1.TemplateList
		err = errors.Join(err, e.c.List(ctx, &templates))
		for i := range templates.Items {
			err = errors.Join(err, fmt.Errorf("template %s: %+v", templates.Items[i].Name, templates.Items[i].Status.Conditions))
		}
		var schemas apisv1alpha1.APIResourceSchemaList
		err = errors.Join(err, e.c.List(ctx, &schemas))
		for i := range schemas.Items {
			err = errors.Join(err, fmt.Errorf("schema %s: %v %v", schemas.Items[i].Name, schemas.Items[i].DeletionTimestamp, schemas.Items[i].Finalizers))
		}
		var exports apisv1alpha2.APIExportList
		err = errors.Join(err, e.c.List(ctx, &exports))
		for i := range exports.Items {
			err = errors.Join(err, fmt.Errorf("export %s: %v", exports.Items[i].Name, exports.Items[i].Spec.Resources))
		}
		return errors.Join(err, fmt.Errorf("conditions %+v", cluster.Status.Conditions))
	})
	for tenant, resource := range map[string]string{e.second: "redis", silver: "vault"} {
		e.waitAbsent(t, tenant, "redis-last")
		if _, err := e.of(tenant).inTenant(t, resource).Get(t.Context(), "last", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the instance of %s: %v", tenant, err)
		}
	}
}
