package defaultbindings

import (
	"context"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

var bindings = apisv1alpha2.Resource("apibindings")

// TypeIndex maps events to the logical clusters whose default bindings they may affect. It indexes the names of all
// logical clusters by type, and the extended types and bound exports of each type in use. Its methods map events to
// requests of a controller of LogicalClusters. It is safe for concurrent use.
type TypeIndex struct {
	types    *workspacetype.Resolver
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]

	mu sync.Mutex
	// typesInUse are the types that logical clusters have, by the text of the reference in them.
	typesInUse map[string]*typeEntry
	// typeOf is the leaf of each logical cluster.
	typeOf map[logicalcluster.Name]string
	// observed are the last observed states of types and exports, by "<resource>/<name>".
	observed map[logicalcluster.Name]map[string]string
}

// typeEntry is a type of logical clusters.
type typeEntry struct {
	members sets.Set[logicalcluster.Name]
	// unresolved is set if the extended types cannot be resolved; an event of any type may change that.
	unresolved bool
	// aliases are the type and all types it extends.
	aliases sets.Set[typeKey]
	// exports are the names, without path, of the bound exports.
	exports sets.Set[string]
	// maintained reports whether it maintains any binding.
	maintained bool
}

type typeKey struct {
	cluster logicalcluster.Name
	name    string
}

// NewTypeIndex returns an empty index. MapLogicalCluster must be called with all events of LogicalClusters.
func NewTypeIndex(registry *storage.Registry, types *workspacetype.Resolver) *TypeIndex {
	return &TypeIndex{
		types:      types,
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
		typesInUse: map[string]*typeEntry{},
		typeOf:     map[logicalcluster.Name]string{},
		observed:   map[logicalcluster.Name]map[string]string{},
	}
}

// MapLogicalCluster indexes a logical cluster, and returns it.
func (t *TypeIndex) MapLogicalCluster(event watch.Event) []controller.Request {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok {
		return nil
	}
	name := logicalcluster.Of(cluster)
	reference := cluster.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey]
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case event.Type == watch.Deleted:
		t.remove(name)
		delete(t.observed, name)
	case reference == "":
		t.remove(name)
	default:
		t.add(name, reference)
	}
	return []controller.Request{clusterKey(name)}
}

// MapWorkspaceType returns the logical clusters of a type, if its state has changed.
func (t *TypeIndex) MapWorkspaceType(event watch.Event) []controller.Request {
	changed, ok := event.Object.(*tenancyv1alpha1.WorkspaceType)
	if !ok {
		return nil
	}
	typeRef := typeKey{logicalcluster.Of(changed), changed.Name}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.changed(typeRef.cluster, "type/"+typeRef.name, stateOf(changed), event.Type) {
		return nil
	}
	var affected []logicalcluster.Name
	for reference, leaf := range t.typesInUse {
		if leaf.unresolved || leaf.aliases.Has(typeRef) {
			t.resolve(reference, leaf)
			affected = append(affected, leaf.members.UnsortedList()...)
		}
	}
	return t.filterPending(affected)
}

// MapExport returns the logical clusters whose types bind an export, if its state has changed.
func (t *TypeIndex) MapExport(event watch.Event) []controller.Request {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.changed(logicalcluster.Of(export), "export/"+export.Name, stateOf(export), event.Type) {
		return nil
	}
	var affected []logicalcluster.Name
	for _, leaf := range t.typesInUse {
		if leaf.exports.Has(export.Name) {
			affected = append(affected, leaf.members.UnsortedList()...)
		}
	}
	return t.filterPending(affected)
}

// MapBinding returns the logical cluster of a binding, if it waits for bindings or maintains any.
func (t *TypeIndex) MapBinding(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.filterPending([]logicalcluster.Name{logicalcluster.Of(binding)})
}

// stateOf returns the generation of an object, or the resource version of a replica, whose generation is not
// meaningful.
func stateOf(object metav1.Object) string {
	if _, copied := object.GetAnnotations()[cacheclient.ShardAnnotation]; copied {
		return object.GetResourceVersion()
	}
	return strconv.FormatInt(object.GetGeneration(), 10)
}

// changed reports whether the state of an object differs from that of the previous event.
func (t *TypeIndex) changed(cluster logicalcluster.Name, object, state string, event watch.EventType) bool {
	if event == watch.Deleted {
		if delete(t.observed[cluster], object); len(t.observed[cluster]) == 0 {
			delete(t.observed, cluster)
		}
		return true
	}
	if t.observed[cluster] == nil {
		t.observed[cluster] = map[string]string{}
	}
	before, known := t.observed[cluster][object]
	t.observed[cluster][object] = state
	return !known || before != state
}

// filterPending returns those of the logical clusters that wait for their first bindings, or that maintain any.
func (t *TypeIndex) filterPending(names []logicalcluster.Name) []controller.Request {
	var keys []controller.Request
	for _, name := range names {
		cluster, err := t.clusters.Get(logicalcluster.With(context.Background(), name), "", corev1alpha1.LogicalClusterName)
		if apierrors.IsNotFound(err) {
			t.remove(name)
			continue
		}
		if err != nil {
			klog.ErrorS(err, "Failed to read the logical cluster of an event", "cluster", name)
			continue
		}
		entry := t.typesInUse[t.typeOf[name]]
		if IsWaiting(cluster) || (entry != nil && (entry.maintained || entry.unresolved)) {
			keys = append(keys, clusterKey(name))
		}
	}
	return keys
}

// IsWaiting reports whether a logical cluster is being initialized and waits for its default bindings.
func IsWaiting(cluster *corev1alpha1.LogicalCluster) bool {
	return cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing &&
		slices.Contains(cluster.Status.Initializers, corev1alpha1.SystemAPIBindingsInitializer)
}

func (t *TypeIndex) add(name logicalcluster.Name, reference string) {
	if t.typeOf[name] == reference {
		return
	}
	t.remove(name)
	entry := t.typesInUse[reference]
	if entry == nil {
		entry = &typeEntry{members: sets.New[logicalcluster.Name]()}
		t.resolve(reference, entry)
		t.typesInUse[reference] = entry
	}
	entry.members.Insert(name)
	t.typeOf[name] = reference
}

func (t *TypeIndex) remove(name logicalcluster.Name) {
	reference, ok := t.typeOf[name]
	if !ok {
		return
	}
	delete(t.typeOf, name)
	entry := t.typesInUse[reference]
	if entry.members.Delete(name); len(entry.members) == 0 {
		delete(t.typesInUse, reference)
	}
}

// resolve resolves the extended types and the bound exports of a type in use.
func (t *TypeIndex) resolve(reference string, target *typeEntry) {
	target.unresolved, target.maintained = false, false
	target.aliases, target.exports = sets.New[typeKey](), sets.New[string]()
	aliases, err := t.aliases(reference)
	if err != nil {
		target.unresolved = true
		return
	}
	target.maintained = HasMaintained(aliases)
	for _, alias := range aliases {
		target.aliases.Insert(typeKey{alias.Cluster, alias.Name})
		for _, entry := range alias.Spec.DefaultAPIBindings {
			target.exports.Insert(entry.Export)
		}
	}
}

func (t *TypeIndex) aliases(text string) ([]workspacetype.Resolved, error) {
	reference, err := workspacetype.ParseReference(text)
	if err != nil {
		return nil, err
	}
	leaf, err := t.types.Get(context.Background(), reference)
	if err != nil {
		return nil, err
	}
	return t.types.Aliases(context.Background(), leaf)
}

// Sizes returns the number of logical clusters, of types in use, and of logical clusters with types or exports.
func (t *TypeIndex) Sizes() (clusters, types, providers int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.typeOf), len(t.typesInUse), len(t.observed)
}

func clusterKey(name logicalcluster.Name) controller.Request {
	return controller.Request{ClusterName: name, Name: corev1alpha1.LogicalClusterName}
}
