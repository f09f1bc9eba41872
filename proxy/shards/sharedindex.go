package shards

import (
	"context"
	"errors"
	"maps"

	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// SharedIndexReader keeps an index in sync with the shared index that shards write into etcd. It sends no requests to
// shards, so that a proxy starts while shards are down.
type SharedIndexReader struct {
	index     *index.Index
	subset    Subset
	types     *workspacetypes.Registry // nil if workspace types do not name issuers
	reflector *sharedindex.Reflector
}

// NewSharedIndexReader returns a reader that Run starts.
func NewSharedIndexReader(o *sharedindex.Options, idx *index.Index, subset Subset, types *workspacetypes.Registry) *SharedIndexReader {
	r := &SharedIndexReader{index: idx, subset: subset, types: types}
	r.reflector = sharedindex.NewReflector(o, &recordHandler{SharedIndexReader: r})
	return r
}

// Run lists and watches the shared index until the context ends.
func (r *SharedIndexReader) Run(ctx context.Context) error { return r.reflector.Run(ctx) }

// Ready returns nil once the shared index is synced and has a shard.
func (r *SharedIndexReader) Ready() error {
	if err := r.reflector.HasSynced(); err != nil {
		return err
	}
	if len(r.index.Load().ShardNames()) == 0 {
		return errors.New("the shared index has no shard yet: the root shard writes them if it is configured with the shared index")
	}
	return nil
}

// Sources returns the source of the index, true if it is synced and connected.
func (r *SharedIndexReader) Sources() map[string]bool {
	return map[string]bool{"shared index": r.reflector.Connected() == nil}
}

// WaitForSync blocks until Ready returns nil.
func (r *SharedIndexReader) WaitForSync(ctx context.Context) error { return waitFor(ctx, r.Ready) }

func (r *SharedIndexReader) setShard(name string, record sharedindex.Shard) {
	shard := index.Shard{Name: name, NotServed: !r.subset.Has(name, record.Labels)}
	if record.BaseURL != "" {
		shard.BaseURL, shard.Err = parseBaseURL(record.BaseURL)
	}
	r.index.SetShard(shard)
}

func (r *SharedIndexReader) removeShard(name string) {
	r.index.RemoveShard(name)
	if r.types != nil {
		r.types.RemoveShard(name)
	}
}

// recordHandler is a sharedindex.EventHandler. Its list has the records of one shard during a list.
type recordHandler struct {
	*SharedIndexReader
	list recordList
}

// maxPart is the number of records that are added to the index at once.
const maxPart = 10_000

type recordList struct {
	*index.List
	clusters   []index.Cluster
	workspaces []index.Workspace
	types      map[workspacetypes.Key][]string
	issuers    map[workspacetypes.Key][]tenancyv1alpha1.JWTAuthenticator
	shards     map[string]sharedindex.Shard
}

var _ sharedindex.EventHandler = &recordHandler{}

// OnListStart implements sharedindex.EventHandler.
func (h *recordHandler) OnListStart(shard string) {
	h.list = recordList{List: h.index.StartList(shard), types: map[workspacetypes.Key][]string{}, issuers: map[workspacetypes.Key][]tenancyv1alpha1.JWTAuthenticator{}, shards: map[string]sharedindex.Shard{}}
}

// OnListRecord implements sharedindex.EventHandler.
func (h *recordHandler) OnListRecord(key sharedindex.Key, value []byte) {
	list := &h.list
	visit(sharedindex.Change{Key: key, Value: value}, visitor{
		cluster:       func(c index.Cluster) { list.clusters = append(list.clusters, c) },
		workspace:     func(w index.Workspace) { list.workspaces = append(list.workspaces, w) },
		workspaceType: func(key workspacetypes.Key, names []string) { list.types[key] = names },
		issuers:       func(key workspacetypes.Key, jwt []tenancyv1alpha1.JWTAuthenticator) { list.issuers[key] = jwt },
		shard:         func(name string, shard sharedindex.Shard) { list.shards[name] = shard },
	})
	if len(list.clusters)+len(list.workspaces) >= maxPart {
		list.addPart()
	}
}

// addPart adds to the index what has been listed since the last part.
func (l *recordList) addPart() {
	l.Add(l.clusters, l.workspaces)
	l.clusters, l.workspaces = l.clusters[:0], l.workspaces[:0]
}

// OnListEnd implements sharedindex.EventHandler. An incomplete list adds to the index, a complete one replaces the
// entries of the shard.
func (h *recordHandler) OnListEnd(shard string, complete bool) {
	if shard == sharedindex.RootShard {
		h.updateShards(complete)
	}
	h.list.addPart()
	if complete {
		h.list.End()
	}
	h.updateTypes(shard, complete)
	h.list = recordList{} // releases the memory
}

func (h *recordHandler) updateShards(complete bool) {
	for name, record := range h.list.shards {
		h.setShard(name, record)
	}
	if !complete {
		return
	}
	for _, name := range h.index.Load().ShardNames() {
		// The root shard, whose list this is, has entries that belong to it.
		if _, ok := h.list.shards[name]; !ok && name != sharedindex.RootShard {
			h.removeShard(name)
		}
	}
}

func (h *recordHandler) updateTypes(shard string, complete bool) {
	if h.types == nil {
		return
	}
	if complete {
		h.types.ReplaceTypes(shard, maps.Clone(h.list.types))
		h.types.ReplaceConfigurations(shard, maps.Clone(h.list.issuers))
		return
	}
	for key, names := range h.list.types {
		h.types.PutType(shard, key, names)
	}
	for key, jwt := range h.list.issuers {
		h.types.PutConfiguration(shard, key, jwt)
	}
}

// OnIncomplete implements sharedindex.EventHandler.
func (h *recordHandler) OnIncomplete(shard string) { h.index.SetNotSynced(shard) }

// OnChange implements sharedindex.EventHandler.
func (h *recordHandler) OnChange(shard string, change sharedindex.Change) {
	deleted := change.Value == nil
	visit(change, visitor{
		cluster: func(c index.Cluster) {
			if deleted {
				h.index.DeleteCluster(shard, c.Name)
				return
			}
			h.index.PutCluster(shard, c)
		},
		workspace: func(w index.Workspace) { h.index.PutWorkspace(shard, w) }, // removes one that is not routable
		workspaceType: func(key workspacetypes.Key, names []string) {
			if h.types != nil {
				h.types.PutType(shard, key, names)
			}
		},
		issuers: func(key workspacetypes.Key, jwt []tenancyv1alpha1.JWTAuthenticator) {
			if h.types != nil {
				h.types.PutConfiguration(shard, key, jwt)
			}
		},
		shard: func(name string, record sharedindex.Shard) {
			switch {
			case shard != sharedindex.RootShard: // only the root shard defines what shards exist
			case deleted:
				h.removeShard(name)
			default:
				h.setShard(name, record)
			}
		},
	})
}

// visitor has a function for each kind of records.
type visitor struct {
	cluster       func(index.Cluster)
	workspace     func(index.Workspace)
	workspaceType func(workspacetypes.Key, []string)
	issuers       func(workspacetypes.Key, []tenancyv1alpha1.JWTAuthenticator)
	shard         func(string, sharedindex.Shard)
}

// visit decodes a record and passes it to the visitor. A deleted record is passed as its zero value. An invalid one
// is logged and skipped, so that it does not affect others.
func visit(change sharedindex.Change, v visitor) {
	key := change.Key
	object := workspacetypes.Key{Cluster: key.Cluster, Name: key.Name}
	var err error
	switch key.Kind {
	case sharedindex.Clusters:
		err = decode(change, func(c sharedindex.Cluster) error {
			v.cluster(toIndexCluster(key.Cluster, c))
			return nil
		})
	case sharedindex.Workspaces:
		err = decode(change, func(w sharedindex.Workspace) error {
			workspace, err := toIndexWorkspace(key.Cluster, key.Name, w)
			if err == nil {
				v.workspace(workspace)
			}
			return err
		})
	case sharedindex.Types:
		err = decode(change, func(t sharedindex.Type) error { v.workspaceType(object, t.Configurations); return nil })
	case sharedindex.Issuers:
		err = decode(change, func(i sharedindex.AuthenticationConfiguration) error { v.issuers(object, i.JWT); return nil })
	case sharedindex.Shards:
		err = decode(change, func(s sharedindex.Shard) error { v.shard(key.Name, s); return nil })
	}
	if err != nil {
		klog.ErrorS(err, "Ignoring an invalid record of the shared index", "kind", key.Kind, "cluster", key.Cluster, "name", key.Name)
	}
}

// decode calls use with the record of a change.
func decode[T any](change sharedindex.Change, use func(T) error) error {
	var record T
	if change.Value != nil {
		var err error
		if record, err = sharedindex.Decode[T](change.Value); err != nil {
			return err
		}
	}
	return use(record)
}
