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

// Concerned finds the logical clusters whose default bindings an event may change. It keeps the name of every logical
// cluster under its type, and of each type in use what it extends and binds. Its methods are Input.Keys of a controller
// that works on LogicalClusters. It is safe for concurrent use.
type Concerned struct {
	types    *workspacetype.Resolver
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]

	mu sync.Mutex
	// leaves are the types that logical clusters have, by the text of the reference in them.
	leaves map[string]*leaf
	// typeOf is the leaf of each logical cluster.
	typeOf map[logicalcluster.Name]string
	// seen are the states of types and exports that the last event told, by "<resource>/<name>".
	seen map[logicalcluster.Name]map[string]string
}

// leaf is a type of logical clusters.
type leaf struct {
	members sets.Set[logicalcluster.Name]
	// broken tells that what it extends cannot be found out; any type may mend that.
	broken bool
	// aliases are the types that it counts as.
	aliases sets.Set[typeKey]
	// exports are the names, without path, of what it binds.
	exports sets.Set[string]
	// maintained tells whether it maintains any binding.
	maintained bool
}

type typeKey struct {
	cluster logicalcluster.Name
	name    string
}

// NewConcerned returns one that knows nothing yet: LogicalCluster must get all events.
func NewConcerned(registry *storage.Registry, types *workspacetype.Resolver) *Concerned {
	return &Concerned{
		types:    types,
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
		leaves:   map[string]*leaf{},
		typeOf:   map[logicalcluster.Name]string{},
		seen:     map[logicalcluster.Name]map[string]string{},
	}
}

// LogicalCluster takes note of a logical cluster, and returns it.
func (c *Concerned) LogicalCluster(event watch.Event) []controller.Key {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok {
		return nil
	}
	name := logicalcluster.Of(cluster)
	reference := cluster.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case event.Type == watch.Deleted:
		c.forget(name)
		delete(c.seen, name)
	case reference == "":
		c.forget(name)
	default:
		c.remember(name, reference)
	}
	return []controller.Key{key(name)}
}

// WorkspaceType returns the logical clusters of a type, if what the type says has changed.
func (c *Concerned) WorkspaceType(event watch.Event) []controller.Key {
	changed, ok := event.Object.(*tenancyv1alpha1.WorkspaceType)
	if !ok {
		return nil
	}
	of := typeKey{logicalcluster.Of(changed), changed.Name}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.news(of.cluster, "type/"+of.name, stateOf(changed), event.Type) {
		return nil
	}
	var affected []logicalcluster.Name
	for reference, leaf := range c.leaves {
		if leaf.broken || leaf.aliases.Has(of) {
			c.resolve(reference, leaf)
			affected = append(affected, leaf.members.UnsortedList()...)
		}
	}
	return c.unfinished(affected)
}

// Export returns the logical clusters whose types name an export, if what the export says has changed.
func (c *Concerned) Export(event watch.Event) []controller.Key {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.news(logicalcluster.Of(export), "export/"+export.Name, stateOf(export), event.Type) {
		return nil
	}
	var affected []logicalcluster.Name
	for _, leaf := range c.leaves {
		if leaf.exports.Has(export.Name) {
			affected = append(affected, leaf.members.UnsortedList()...)
		}
	}
	return c.unfinished(affected)
}

// Binding returns the logical cluster of a binding, if that waits for bindings or maintains any.
func (c *Concerned) Binding(event watch.Event) []controller.Key {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unfinished([]logicalcluster.Name{logicalcluster.Of(binding)})
}

// stateOf names the state of an object: its generation, and its resource version where it is a copy of what another
// shard has, whose generation says nothing.
func stateOf(object metav1.Object) string {
	if _, copied := object.GetAnnotations()[cacheclient.ShardAnnotation]; copied {
		return object.GetResourceVersion()
	}
	return strconv.FormatInt(object.GetGeneration(), 10)
}

// news tells whether an event is about another state of an object than the one before.
func (c *Concerned) news(cluster logicalcluster.Name, object, state string, event watch.EventType) bool {
	if event == watch.Deleted {
		if delete(c.seen[cluster], object); len(c.seen[cluster]) == 0 {
			delete(c.seen, cluster)
		}
		return true
	}
	if c.seen[cluster] == nil {
		c.seen[cluster] = map[string]string{}
	}
	before, known := c.seen[cluster][object]
	c.seen[cluster][object] = state
	return !known || before != state
}

// unfinished returns those of the logical clusters that wait for their first bindings, or that maintain any.
func (c *Concerned) unfinished(names []logicalcluster.Name) []controller.Key {
	var keys []controller.Key
	for _, name := range names {
		cluster, err := c.clusters.Get(logicalcluster.With(context.Background(), name), "", corev1alpha1.LogicalClusterName)
		if apierrors.IsNotFound(err) {
			c.forget(name)
			continue
		}
		if err != nil {
			klog.ErrorS(err, "Reading a logical cluster that an event concerns", "cluster", name)
			continue
		}
		of := c.leaves[c.typeOf[name]]
		if Awaited(cluster) || (of != nil && (of.maintained || of.broken)) {
			keys = append(keys, key(name))
		}
	}
	return keys
}

// Awaited tells whether a logical cluster is being initialized and waits for its default bindings.
func Awaited(cluster *corev1alpha1.LogicalCluster) bool {
	return cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing &&
		slices.Contains(cluster.Status.Initializers, corev1alpha1.SystemAPIBindingsInitializer)
}

func (c *Concerned) remember(name logicalcluster.Name, reference string) {
	if c.typeOf[name] == reference {
		return
	}
	c.forget(name)
	of := c.leaves[reference]
	if of == nil {
		of = &leaf{members: sets.New[logicalcluster.Name]()}
		c.resolve(reference, of)
		c.leaves[reference] = of
	}
	of.members.Insert(name)
	c.typeOf[name] = reference
}

func (c *Concerned) forget(name logicalcluster.Name) {
	reference, ok := c.typeOf[name]
	if !ok {
		return
	}
	delete(c.typeOf, name)
	of := c.leaves[reference]
	if of.members.Delete(name); len(of.members) == 0 {
		delete(c.leaves, reference)
	}
}

// resolve finds out what a type in use counts as and binds.
func (c *Concerned) resolve(reference string, of *leaf) {
	of.broken, of.maintained = false, false
	of.aliases, of.exports = sets.New[typeKey](), sets.New[string]()
	aliases, err := c.aliases(reference)
	if err != nil {
		of.broken = true
		return
	}
	of.maintained = Maintained(aliases)
	for _, alias := range aliases {
		of.aliases.Insert(typeKey{alias.Cluster, alias.Name})
		for _, entry := range alias.Spec.DefaultAPIBindings {
			of.exports.Insert(entry.Export)
		}
	}
}

func (c *Concerned) aliases(text string) ([]workspacetype.Resolved, error) {
	reference, err := workspacetype.ParseReference(text)
	if err != nil {
		return nil, err
	}
	leaf, err := c.types.Get(context.Background(), reference)
	if err != nil {
		return nil, err
	}
	return c.types.Aliases(context.Background(), leaf)
}

// Sizes returns how many logical clusters, types in use, and logical clusters with types or exports are known: what the
// memory follows.
func (c *Concerned) Sizes() (clusters, types, providers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.typeOf), len(c.leaves), len(c.seen)
}

func key(name logicalcluster.Name) controller.Key {
	return controller.Key{Cluster: name, Name: corev1alpha1.LogicalClusterName}
}
