package tenancy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/bootstrap"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// universalInitializer is that of the built-in type which most others extend.
const universalInitializer corev1alpha1.LogicalClusterInitializer = "root:universal"

// blockedAgain is when an initializer that cannot go on looks again whether somebody helped.
const blockedAgain = time.Minute

// servedExports are the exports of root whose APIs are served everywhere without a binding, or serve nothing yet.
var servedExports = []string{"tenancy.kcp.io", "topology.kcp.io"}

// initialize does the work of the initializers that are the server's own and takes those that are done off the list.
// Others are left to their controllers.
func (c *logicalClusterController) initialize(ctx context.Context, scope *clusterScope) (controller.Result, error) {
	cluster := scope.cluster
	if cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseInitializing {
		return controller.Result{}, nil
	}
	var result controller.Result
	var remaining []corev1alpha1.LogicalClusterInitializer
	for _, initializer := range cluster.Status.Initializers {
		done := false
		switch initializer {
		case universalInitializer:
			if err := c.createNamespaces(ctx); err != nil {
				return result, err
			}
			done = true
		case corev1alpha1.SystemAPIBindingsInitializer:
			var err error
			if done, err = c.bindDefaults(ctx, scope); err != nil {
				return result, err
			}
			if !done {
				result.RequeueAfter = blockedAgain
			}
		}
		if !done {
			remaining = append(remaining, initializer)
		}
	}
	cluster.Status.Initializers = remaining
	return result, nil
}

// createNamespaces gives a workspace the namespaces that Kubernetes clients expect. They are the tenant's afterwards.
func (c *logicalClusterController) createNamespaces(ctx context.Context) error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{bootstrap.CreateOnlyAnnotation: "true"}}}
		if err := c.cfg.Clients.Typed.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating namespace %q: %w", name, err)
		}
	}
	return nil
}

// bindDefaults tells whether the default bindings of the workspace's types are satisfied. What it needs is in
// condition APIBindingsInitialized if not.
func (c *logicalClusterController) bindDefaults(ctx context.Context, scope *clusterScope) (bool, error) {
	aliases, err := c.aliases(ctx, scope.name)
	if errors.Is(err, workspacetype.ErrUnresolvable) {
		conditionsv1alpha1.MarkFalse(scope.cluster, corev1alpha1.APIBindingsInitialized, corev1alpha1.ReasonWorkspaceTypesInvalid, conditionsv1alpha1.SeverityError, "%v", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	unserved := unservedBindings(aliases)
	if len(unserved) == 0 {
		conditionsv1alpha1.Delete(scope.cluster, corev1alpha1.APIBindingsInitialized)
		return true, nil
	}
	conditionsv1alpha1.MarkFalse(scope.cluster, corev1alpha1.APIBindingsInitialized, corev1alpha1.ReasonAPIBindingErrors, conditionsv1alpha1.SeverityError,
		"cannot bind to export %s: API bindings are not supported by this version", strings.Join(unserved, ", "))
	return false, nil
}

func (c *logicalClusterController) aliases(ctx context.Context, cluster logicalcluster.Name) ([]workspacetype.Resolved, error) {
	leaf, err := c.cfg.Types.OfCluster(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return c.cfg.Types.Aliases(ctx, leaf)
}

// unservedBindings returns the exports, as "<path>:<name>" and sorted, that the types bind by default and that this
// server cannot bind.
func unservedBindings(aliases []workspacetype.Resolved) []string {
	var unserved []string
	for _, alias := range aliases {
		for _, binding := range alias.Spec.DefaultAPIBindings {
			path := binding.Path
			if path == "" {
				path = alias.Cluster.String()
			}
			if path == logicalcluster.Root.String() && slices.Contains(servedExports, binding.Export) {
				continue
			}
			unserved = append(unserved, path+":"+binding.Export)
		}
	}
	slices.Sort(unserved)
	return slices.Compact(unserved)
}
