// Package infrastructure contains the environments in which backends of the infrastructure provider run the conformance suite, and the
// acceptance tests of the provider: three shards, with the provider on one and tenants on the others, and a stock kube-apiserver as
// runtime cluster.
package infrastructure

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backendtest"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// FeatureGates are the feature gates of the servers.
const FeatureGates = "CacheAPIs=true"

// created counts the workspaces below root, for their names.
var created atomic.Int32

// Shard is an environment of one shard in the process of the test. It starts in seconds.
type Shard struct{ *shardtesting.Shard }

var _ backendtest.Environment = Shard{}

// StartShard starts a shard that ends with the test.
func StartShard(t testing.TB) Shard {
	return Shard{shardtesting.Start(t, func(o *options.Options) { o.FeatureGates = []string{FeatureGates} })}
}

// NewProvider implements backendtest.Environment.
func (s Shard) NewProvider(t testing.TB) backendtest.Workspace { return s.newWorkspace(t) }

// NewTenant implements backendtest.Environment.
func (s Shard) NewTenant(t testing.TB) backendtest.Workspace { return s.newWorkspace(t) }

func (s Shard) newWorkspace(t testing.TB) backendtest.Workspace {
	name := fmt.Sprintf("w%d", created.Add(1))
	s.NewWorkspace(t, "root", name)
	return backendtest.Workspace{Name: name, Config: shardtesting.At(s.Admin(t), "root:"+name)}
}

// Delete implements backendtest.Environment.
func (s Shard) Delete(t testing.TB, tenant backendtest.Workspace) {
	deleteWorkspace(t, shardtesting.At(s.Admin(t), "root"), tenant.Name)
}

// Installation is an environment of three shards behind a front proxy: providers are on the root shard, tenants on the two others in
// turn. Each user is administrator of one workspace only.
type Installation struct{ *installation.Installation }

var _ backendtest.Environment = Installation{}

// NewProvider implements backendtest.Environment.
func (i Installation) NewProvider(t testing.TB) backendtest.Workspace {
	return i.newWorkspace(t, installation.Root)
}

// NewTenant implements backendtest.Environment.
func (i Installation) NewTenant(t testing.TB) backendtest.Workspace {
	shards := []string{installation.Alpha, installation.Beta}
	return i.newWorkspace(t, shards[int(tenants.Add(1))%len(shards)])
}

// tenants counts the tenants of installations.
var tenants atomic.Int32

// NewTenantOn creates a workspace for a tenant on a shard.
func (i Installation) NewTenantOn(t testing.TB, shard string) backendtest.Workspace {
	return i.newWorkspace(t, shard)
}

func (i Installation) newWorkspace(t testing.TB, shard string) backendtest.Workspace {
	name := fmt.Sprintf("w%d", created.Add(1))
	return backendtest.Workspace{Name: name, Config: i.NewWorkspace(t, name, name+"-admin", shardtesting.OnShard(shard))}
}

// Delete implements backendtest.Environment.
func (i Installation) Delete(t testing.TB, tenant backendtest.Workspace) {
	deleteWorkspace(t, i.Admin(t, "root"), tenant.Name)
}

// deleteWorkspace deletes a workspace below root, and waits until it does not exist any more.
func deleteWorkspace(t testing.TB, root *rest.Config, name string) {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(tenancyv1alpha1.AddToScheme(scheme))
	c, err := client.New(root, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Delete(context.Background(), workspace); err != nil {
		t.Fatalf("deleting workspace %s: %v", name, err)
	}
	shardtesting.Eventually(t, "workspace "+name+" is gone", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKey{Name: name}, workspace)
		if err == nil {
			return fmt.Errorf("the phase is %s, conditions are %+v", workspace.Status.Phase, workspace.Status.Conditions)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}
