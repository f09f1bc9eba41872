package tenancy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/bootstrap"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// universalInitializer is the initializer of the built-in type that most others extend.
const universalInitializer corev1alpha1.LogicalClusterInitializer = "root:universal"

// parallelCreations bounds the objects that are created at once for one logical cluster. Each is a request. The namespaces and what they
// contain are among the first ones, because they must be created at once.
const parallelCreations = 12

// initialize ensures the admin binding, runs the system initializers and removes the completed ones from the list. Others
// are left to their controllers. The objects do not depend on each other: they are created together, because each creation
// waits for etcd.
func (c *logicalClusterController) initialize(ctx context.Context, scope *clusterScope) (controller.Result, error) {
	cluster := scope.cluster
	if cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseInitializing {
		return controller.Result{}, c.ensureAdmin(ctx, scope)
	}
	var result controller.Result
	created, err := c.newBindings(ctx, scope) // an error does not delay the others
	creations := []func(context.Context) error{func(ctx context.Context) error { return c.ensureAdmin(ctx, scope) }}
	if slices.Contains(cluster.Status.Initializers, universalInitializer) {
		creations = append(creations, c.missingNamespaces(ctx, created != nil && created.AcceptsClaims())...)
	}
	if created != nil {
		creations = append(creations, created.Creations()...)
	}
	for some := range slices.Chunk(creations, parallelCreations) {
		err = errors.Join(err, errors.Join(storage.Together(ctx, some...)...))
	}
	if err != nil {
		return result, err
	}
	bindings, err := recordBindings(scope, created)
	if err != nil {
		return result, err
	}
	var remaining []corev1alpha1.LogicalClusterInitializer
	for _, initializer := range cluster.Status.Initializers {
		done := false
		switch initializer {
		case universalInitializer:
			done = true
		case corev1alpha1.SystemAPIBindingsInitializer:
			done, result.RequeueAfter = bindings.done, bindings.requeueAfter
		}
		if !done {
			remaining = append(remaining, initializer)
		}
	}
	cluster.Status.Initializers = remaining
	return result, nil
}

// missingNamespaces returns the creations of the namespaces that Kubernetes clients expect, with their default objects. Tenants may change them.
// If there are claims on objects, the default objects are left to their controller: it creates them with the labels of the claims, which are
// known once the bindings are stored.
func (c *logicalClusterController) missingNamespaces(ctx context.Context, claims bool) []func(context.Context) error {
	var creations []func(context.Context) error
	for _, name := range lifecycle.InitialNamespaces {
		if _, err := c.namespaces.Get(ctx, "", name); err == nil {
			continue
		}
		if !claims {
			creations = append(creations, c.namespaceDefaults(ctx, name)...)
		}
		creations = append(creations, func(ctx context.Context) error {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{bootstrap.CreateOnlyAnnotation: "true"}}}
			if err := c.cfg.Clients.Typed.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating namespace %q: %w", name, err)
			}
			return nil
		})
	}
	return creations
}

// namespaceDefaults returns the creations of the default objects of a namespace that is created with them. Their errors are dropped: the
// controller of these objects creates what is missing once the namespace exists, and reports its own errors.
func (c *logicalClusterController) namespaceDefaults(ctx context.Context, namespace string) []func(context.Context) error {
	missing, err := c.cfg.NamespaceDefaults.Missing(ctx, namespace)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Default objects are not created with their namespace", "namespace", namespace, "err", err)
	}
	creations := make([]func(context.Context) error, 0, len(missing))
	for _, create := range missing {
		creations = append(creations, storage.InNewNamespace(func(ctx context.Context) error {
			if err := create(ctx); err != nil {
				klog.FromContext(ctx).V(4).Info("A default object is not created with its namespace", "namespace", namespace, "err", err)
			}
			return nil
		}))
	}
	return creations
}
