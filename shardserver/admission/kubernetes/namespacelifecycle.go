// Package kubernetes contains the plug-ins for writes of kinds of Kubernetes: namespaces and their objects, definitions, certificates.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// recentlyDeleted and recentlyDeletedFor bound the number of namespaces, over all logical clusters, that are
	// recorded as just deleted, and the duration, which must exceed the delay of the watch cache.
	recentlyDeleted    = 1024
	recentlyDeletedFor = 30 * time.Second
)

var (
	namespaces               = schema.GroupResource{Resource: "namespaces"}
	localSubjectAccessReview = schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}

	immortalNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}
)

// namespaceLifecycle refuses objects in namespaces that do not exist or are being deleted, and the deletion of the
// namespaces that every logical cluster requires, unless the logical cluster itself is being deleted.
//
// The stock plug-in for this purpose has one set of namespaces from one informer; this one reads those of the request's
// logical cluster.
type namespaceLifecycle struct {
	*admission.Handler
	namespaces *storage.Reader[*core.Namespace]
	clusters   rules.ClusterReader
	// deleted records namespaces whose deletion this process handled, because the watch cache may still show them as
	// active. It is bounded in size and time; losing an entry only loses that protection.
	deleted *cache.LRUExpireCache
}

// clusterNamespace is a namespace in a logical cluster.
type clusterNamespace struct {
	cluster   logicalcluster.Name
	namespace string
}

// NewNamespaceLifecycle returns the plug-in WorkspaceNamespaceLifecycle.
func NewNamespaceLifecycle(config rules.Config) admission.Interface {
	return &namespaceLifecycle{
		Handler:    admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		namespaces: storage.NewReader[*core.Namespace](config.Registry, rules.Namespaces),
		clusters:   rules.NewClusterReader(config.Registry),
		deleted:    cache.NewLRUExpireCache(recentlyDeleted),
	}
}

// Admit implements admission.MutationInterface. It changes nothing; it runs before other plug-ins so that a missing
// namespace is the first error that a client receives.
func (l *namespaceLifecycle) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch {
	case a.GetResource().GroupResource() == namespaces:
		if a.GetOperation() == admission.Delete {
			return l.admitNamespaceDeletion(ctx, a)
		}
		return nil
	case a.GetNamespace() == "", a.GetOperation() == admission.Delete:
		return nil
	case a.GetResource().GroupResource() == localSubjectAccessReview:
		return nil // reviews must not disclose whether the namespace exists
	case a.GetOperation() == admission.Create && storage.IsInNewNamespace(ctx):
		return nil // the storage refuses it unless the namespace is created with it
	}
	return l.admitContent(ctx, a)
}

func (l *namespaceLifecycle) admitNamespaceDeletion(ctx context.Context, a admission.Attributes) error {
	if slices.Contains(immortalNamespaces, a.GetName()) {
		deleting, err := l.clusters.IsDeleting(ctx)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("reading the logical cluster of namespace %q: %w", a.GetName(), err))
		}
		if !deleting {
			return apierrors.NewForbidden(rules.Namespaces, a.GetName(), errors.New("this namespace may not be deleted"))
		}
	}
	if cluster, ok := logicalcluster.From(ctx); ok && !a.IsDryRun() {
		l.deleted.Add(clusterNamespace{cluster, a.GetName()}, true, recentlyDeletedFor)
	}
	return nil
}

func (l *namespaceLifecycle) admitContent(ctx context.Context, a admission.Attributes) error {
	namespace, err := l.namespace(ctx, a.GetNamespace(), a.GetOperation() == admission.Create)
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("reading namespace %q: %w", a.GetNamespace(), err))
	}
	if a.GetOperation() != admission.Create || namespace.Status.Phase != core.NamespaceTerminating {
		return nil
	}
	return namespaceTerminating(a)
}

// namespace reads a namespace, and repeats the read consistently where the watch cache may be stale: if it does not
// have the namespace, or shows one as active whose deletion this process handled. For a creation it does so, too, if the logical
// cluster is being deleted or is gone, because its namespaces are deleted without requests. Creations are frequent: whether it is so is
// a question to the watch cache.
func (l *namespaceLifecycle) namespace(ctx context.Context, name string, creation bool) (*core.Namespace, error) {
	namespace, err := l.namespaces.Get(ctx, "", name)
	if apierrors.IsNotFound(err) {
		return l.namespaces.GetLatest(ctx, "", name)
	}
	if err != nil {
		return nil, err
	}
	cluster, _ := logicalcluster.From(ctx)
	if creation && !cluster.IsSystem() { // system logical clusters are not deleted
		if object, err := l.clusters.Get(ctx); err != nil || object.DeletionTimestamp != nil {
			return l.namespaces.GetLatest(ctx, "", name)
		}
	}
	if _, deleted := l.deleted.Get(clusterNamespace{cluster, name}); deleted && namespace.Status.Phase == core.NamespaceActive {
		return l.namespaces.GetLatest(ctx, "", name)
	}
	return namespace, nil
}

func namespaceTerminating(a admission.Attributes) error {
	err := admission.NewForbidden(a, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.GetNamespace()))
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", a.GetNamespace()),
			Field:   "metadata.namespace",
		})
	}
	return err
}
