package doctor

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// readFromShards reads all logical clusters of each shard with few lists, whatever their number is: the shards select what is not as it should
// be, unless everything is to be compared.
func (g *gatherer) readFromShards(ctx context.Context) {
	workspaces := connection.Workspaces
	identity, err := g.identityOf(ctx, workspaces.Group)
	if err != nil {
		g.skip(AreaTree, "the identity of the API of workspaces cannot be read", err)
	}
	workspaces.Resource += ":" + identity // a list of all logical clusters requires it
	g.limited(len(g.facts.Shards), func(i int) {
		r := g.shardReader(g.facts.Shards[i])
		if err == nil {
			r.workspaces(ctx, workspaces)
		}
		if g.deep {
			r.logicalClusters(ctx)
		}
		r.exports(ctx)
	})
	g.identities = identitiesOf(g.facts.Exports)
	g.limited(len(g.facts.Shards), func(i int) { g.shardReader(g.facts.Shards[i]).bindings(ctx) }) // these compare with all exports
	if g.deep {
		g.recheckOrphans(ctx)
	}
}

func (g *gatherer) identityOf(ctx context.Context, export string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object, err := g.installation.Get(ctx, logicalcluster.Root.Path(), connection.APIExports, export)
	if err != nil {
		return "", err
	}
	decoded, err := exportOf(object)
	return decoded.IdentityHash, err
}

// shardReader reads all logical clusters of one shard.
type shardReader struct {
	*gatherer
	shard Shard
	all   dynamic.Interface
	err   error
}

func (g *gatherer) shardReader(shard Shard) *shardReader {
	client, err := g.shardClient(shard, logicalcluster.Wildcard.Path())
	return &shardReader{gatherer: g, shard: shard, all: client, err: err}
}

func (g *gatherer) shardClient(shard Shard, path logicalcluster.Path) (dynamic.Interface, error) {
	config, err := g.shardConfig(shard)
	if err != nil {
		return nil, err
	}
	config.Host += path.URLPath()
	return newDynamic(config)
}

// list reads a resource for an area. What fails is a gap.
func (r *shardReader) list(ctx context.Context, area Area, resource schema.GroupVersionResource, selector string, do func(*unstructured.Unstructured) error) {
	what := "the " + schema.ParseGroupResource(resource.Resource).Resource + " of shard " + r.shard.Name
	err := r.err
	if err == nil {
		count := 0
		err = each(ctx, r.all.Resource(resource), selector, func(object *unstructured.Unstructured) error {
			if count++; count%progressEvery == 0 {
				r.progress("Reading %s: %d", what, count)
			}
			return do(object)
		})
	}
	if err != nil {
		r.miss(area, Unread{What: what, Reason: err.Error()})
	}
}

// progressEvery is the number of objects between two lines of progress.
const progressEvery = 10000

func (r *shardReader) workspaces(ctx context.Context, resource schema.GroupVersionResource) {
	selector := corev1alpha1.PhaseLabelKey + "!=" + string(corev1alpha1.LogicalClusterPhaseReady)
	if r.deep {
		selector = ""
	}
	r.progress("Reading workspaces of shard %s", r.shard.Name)
	r.list(ctx, AreaTree, resource, selector, func(object *unstructured.Unstructured) error {
		workspace, err := workspaceOf(object)
		r.record(func(f *Facts) { f.Workspaces = append(f.Workspaces, workspace) })
		return err
	})
}

func (r *shardReader) logicalClusters(ctx context.Context) {
	r.list(ctx, AreaDeep, connection.LogicalClusters, "", func(object *unstructured.Unstructured) error {
		cluster, err := logicalClusterOf(r.shard.Name, object)
		r.record(func(f *Facts) { f.LogicalClusters = append(f.LogicalClusters, cluster) })
		return err
	})
}

func (r *shardReader) exports(ctx context.Context) {
	r.list(ctx, AreaExports, connection.APIExports, "", func(object *unstructured.Unstructured) error {
		export, err := exportOf(object)
		r.record(func(f *Facts) { f.Exports = append(f.Exports, export) })
		return err
	})
	r.list(ctx, AreaExports, slicesResource, "", func(object *unstructured.Unstructured) error {
		slice, err := sliceOf(object, r.facts.Shards)
		r.record(func(f *Facts) { f.Slices = append(f.Slices, slice) })
		return err
	})
}

// bindings reads the bindings of a shard if its metrics say that some are not as they should be, or if all are to be compared with their
// exports. There are many, so only those that can be findings are kept.
func (r *shardReader) bindings(ctx context.Context) {
	if !r.deep && !mayBeBroken(r.metrics()) {
		return
	}
	r.progress("Reading bindings of shard %s", r.shard.Name)
	count := 0
	r.list(ctx, AreaBindings, connection.APIBindings, "", func(object *unstructured.Unstructured) error {
		if count++; count > maxBindings && !r.deep {
			return errManyBindings
		}
		binding, err := bindingOf(object)
		if err == nil && r.keeps(binding) {
			r.record(func(f *Facts) { f.Bindings = append(f.Bindings, binding) })
		}
		return err
	})
}

// maxBindings bounds how many bindings of a shard are read without --deep.
const maxBindings = 20000

var errManyBindings = fmt.Errorf("only the first %d were read: --deep reads all", maxBindings)

func (r *shardReader) keeps(binding Binding) bool {
	_, isBroken := brokenBinding(&Facts{ReadAt: r.facts.ReadAt}, Limits{}, binding)
	return isBroken || r.deep && r.identities.otherThan(binding) != ""
}

// metrics returns the metrics of the shard, nil if they have not been read.
func (r *shardReader) metrics() Samples {
	for _, server := range r.facts.Servers {
		if server.Name == r.shard.Name {
			return server.Metrics
		}
	}
	return nil
}

// mayBeBroken reports whether a shard counts bindings that are not bound, or have a condition that is False.
func mayBeBroken(metrics Samples) bool {
	if len(metrics[metricBindingPhase]) == 0 {
		return true
	}
	for _, sample := range metrics[metricBindingPhase] {
		if sample.Value > 0 && sample.Labels["phase"] != string(apisv1alpha2.APIBindingPhaseBound) {
			return true
		}
	}
	for _, sample := range metrics[metricBindingCondition] {
		if sample.Value > 0 && sample.Labels["status"] == string(metav1.ConditionFalse) {
			return true
		}
	}
	return false
}
