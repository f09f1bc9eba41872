package syncagent

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// consumer is a workspace that binds the export.
type consumer struct {
	client.Client
	Config *rest.Config
	// Name and Path are those of the workspace, Cluster is the name of its logical cluster.
	Name, Path, Cluster string
}

var consumers atomic.Int32

// claims are the claims that consumers accept unless a test names others.
var claims = []schema.GroupResource{
	{Resource: "configmaps"}, {Resource: "events"}, {Resource: "namespaces"}, {Resource: "secrets"}, {Group: "core.kcp.io", Resource: "logicalclusters"},
}

// Consumer creates a workspace on a shard that binds the export and accepts claims, by default the usual ones.
func (e *env) Consumer(t *testing.T, shard string, accepted ...schema.GroupResource) *consumer {
	t.Helper()
	if len(accepted) == 0 {
		accepted = claims
	}
	name := fmt.Sprintf("%s-c%d", e.Name, consumers.Add(1))
	config := e.NewWorkspace(t, name, name+"-user", shardtesting.OnShard(shard))
	c := &consumer{Client: newClient(t, config), Config: config, Name: name, Path: "root:" + name}
	c.Bind(t, e, accepted...)
	return c
}

// Bind creates the binding, and waits until it is bound.
func (c *consumer) Bind(t *testing.T, e *env, accepted ...schema.GroupResource) {
	t.Helper()
	binding := &apisv1alpha1.APIBinding{}
	binding.Name = "service"
	binding.Spec.Reference.Export = &apisv1alpha1.ExportBindingReference{Path: e.ProviderPath, Name: e.Name}
	for _, claim := range accepted {
		binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, apisv1alpha1.AcceptablePermissionClaim{
			PermissionClaim: apisv1alpha1.PermissionClaim{GroupResource: apisv1alpha1.GroupResource{Group: claim.Group, Resource: claim.Resource}, All: true},
			State:           apisv1alpha1.ClaimAccepted,
		})
	}
	create(t, c, binding)
	shardtesting.Eventually(t, "the binding in "+c.Name+" is bound", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(binding), binding); err != nil {
			return err
		}
		if binding.Status.Phase != apisv1alpha1.APIBindingPhaseBound {
			return fmt.Errorf("phase is %q, conditions %+v", binding.Status.Phase, binding.Status.Conditions)
		}
		return nil
	})
	c.Cluster = logicalcluster.Of(binding).String()
}

// New creates an object. It retries, because the API may not be served in the workspace yet.
func (c *consumer) New(t *testing.T, object client.Object) {
	t.Helper()
	create(t, c, object)
}

// Copy waits until an object has exactly one copy of a kind, and returns it.
func (e *env) Copy(t *testing.T, kind schema.GroupVersionKind, c *consumer, object *unstructured.Unstructured) (found *unstructured.Unstructured) {
	t.Helper()
	shardtesting.Eventually(t, "the copy of "+object.GetName(), func(ctx context.Context) error {
		copies, err := e.Copies(ctx, kind, c, object)
		if err != nil {
			return err
		}
		if len(copies) != 1 {
			return fmt.Errorf("there are %d", len(copies))
		}
		found = &copies[0]
		return nil
	})
	return found
}

// Copies lists the copies of an object.
func (e *env) Copies(ctx context.Context, kind schema.GroupVersionKind, c *consumer, object *unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := e.Service.List(ctx, list, client.MatchingLabels{
		publication.LabelAgentName: e.Name, publication.LabelRemoteCluster: c.Cluster, publication.LabelRemoteNameHash: expression.SHA1Hex(object.GetName()),
	}); err != nil {
		return nil, err
	}
	copies := list.Items[:0]
	for _, item := range list.Items {
		if item.GetAnnotations()[publication.AnnotationRemoteNamespace] == object.GetNamespace() {
			copies = append(copies, item)
		}
	}
	return copies, nil
}
