package garbage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// searchDelay is the delay of the search in a logical cluster after its first unresolved reference. Every resource
	// has its own watch, so that an owner may be observed later than its dependent. The delay also bounds how often a
	// logical cluster is searched.
	searchDelay = time.Second
	// searchers is the number of logical clusters that are searched concurrently.
	searchers = 4
	// maxUnresolved bounds the references that wait for a search, maxUnresolvedPerCluster those of one logical cluster.
	// Others are not reported.
	maxUnresolved, maxUnresolvedPerCluster = 8192, 1024
	// maxSearchedPairs bounds the pairs of dependent and owner that are kept so that none is reported twice.
	maxSearchedPairs = 4096
)

// unresolvedReference is a reference whose kind and name do not lead to the owner with its UID.
type unresolvedReference struct {
	dependent node
	owner     metav1.OwnerReference
}

// ownerSearch finds owners that are in another namespace than their dependents, by UID and hence whatever kind and name
// the references have. One search lists the objects of a logical cluster in the watch caches, for all of its
// references that are unresolved by then. Collection does not wait for it.
type ownerSearch struct {
	registry   *storage.Registry
	report     func(context.Context, unresolvedReference) error
	controller *controller.Typed[logicalcluster.Name]
	// searched are pairs of dependent and owner.
	searched *lru.Cache

	mu sync.Mutex
	// unresolved has an entry for each logical cluster in the queue; the search removes it. count is the number of all
	// references.
	unresolved map[logicalcluster.Name][]unresolvedReference
	count      int
}

func newOwnerSearch(registry *storage.Registry, report func(context.Context, unresolvedReference) error) *ownerSearch {
	s := &ownerSearch{
		registry: registry, report: report,
		searched:   lru.New(maxSearchedPairs),
		unresolved: map[logicalcluster.Name][]unresolvedReference{},
	}
	s.controller = controller.NewTyped(controller.Options[logicalcluster.Name]{
		Name: "garbage-collector-owners", MaxConcurrentReconciles: searchers, Timeout: objectTimeout, RetryBase: retryBase, RetryMax: retryMax,
		ClusterName: func(cluster logicalcluster.Name) logicalcluster.Name { return cluster },
		Reconcile: func(ctx context.Context, cluster logicalcluster.Name) (controller.Result, error) {
			s.search(ctx, cluster)
			return controller.Result{}, nil
		},
	})
	return s
}

// add enqueues a search for an owner of a dependent, once while the pair is kept.
func (s *ownerSearch) add(dependent node, owner metav1.OwnerReference) {
	cluster := dependent.cluster
	s.mu.Lock()
	defer s.mu.Unlock()
	references := s.unresolved[cluster]
	if s.count >= maxUnresolved || len(references) >= maxUnresolvedPerCluster {
		return
	}
	pair := [2]key{dependent.key, {cluster, owner.UID}}
	if _, known := s.searched.Get(pair); known {
		return
	}
	s.searched.Add(pair, nil)
	if len(references) == 0 {
		s.controller.AddAfter(cluster, searchDelay)
	}
	s.unresolved[cluster] = append(references, unresolvedReference{dependent, owner})
	s.count++
}

// remove removes and returns the unresolved references of a logical cluster.
func (s *ownerSearch) remove(cluster logicalcluster.Name) []unresolvedReference {
	s.mu.Lock()
	defer s.mu.Unlock()
	references := s.unresolved[cluster]
	delete(s.unresolved, cluster)
	s.count -= len(references)
	return references
}

// search reports the unresolved references of a logical cluster whose owners are in another namespace. An error is only
// logged: as upstream, events are not reliable.
func (s *ownerSearch) search(ctx context.Context, cluster logicalcluster.Name) {
	logger := klog.FromContext(ctx).V(2)
	references := s.remove(cluster)
	namespaces := make(map[types.UID]string, len(references))
	for _, reference := range references {
		namespaces[reference.owner.UID] = ""
	}
	if err := s.findNamespaces(ctx, namespaces); err != nil {
		logger.Info("Failed to search owners in other namespaces", "cluster", cluster, "err", err)
	}
	for _, reference := range references {
		namespace := namespaces[reference.owner.UID]
		if namespace == "" || namespace == reference.dependent.namespace {
			continue
		}
		if err := s.report(ctx, reference); err != nil {
			logger.Info("Failed to report an owner in another namespace", "cluster", cluster, "uid", reference.dependent.uid, "owner", reference.owner.UID, "err", err)
		}
	}
}

// findNamespaces sets the namespaces of the objects of the context's logical cluster that have the UIDs.
func (s *ownerSearch) findNamespaces(ctx context.Context, namespaces map[types.UID]string) error {
	resources, err := s.registry.List(ctx)
	if err != nil {
		return err
	}
	ctx = request.WithNamespace(ctx, metav1.NamespaceAll)
	var failed []error
	for _, resource := range resources {
		if !resource.Namespaced || !informer.IsCached(resource) {
			continue
		}
		if err := findNamespacesIn(ctx, resource, namespaces); err != nil {
			failed = append(failed, fmt.Errorf("listing %s: %w", resource.GVR.GroupResource(), err))
		}
	}
	return errors.Join(failed...)
}

func findNamespacesIn(ctx context.Context, resource *storage.Resource, namespaces map[types.UID]string) error {
	list, err := resource.Store.List(ctx, &internalversion.ListOptions{ResourceVersion: cached})
	if err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		if _, wanted := namespaces[object.GetUID()]; wanted {
			namespaces[object.GetUID()] = object.GetNamespace()
		}
		return nil
	})
}
