package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// Shared fills an index from the one that shards write into etcd. It asks no shard for anything: a proxy with it starts
// while shards are down.
type Shared struct {
	index    *index.Index
	subset   Subset
	types    *workspacetypes.Catalog // nil where workspaces bring no issuers
	follower *sharedindex.Follower
}

// NewShared returns what fills the index. Run connects.
func NewShared(o *sharedindex.Options, idx *index.Index, subset Subset, types *workspacetypes.Catalog) *Shared {
	s := &Shared{index: idx, subset: subset, types: types}
	s.follower = sharedindex.NewFollower(o, &reading{Shared: s})
	return s
}

// Run follows the shared index until the context ends.
func (s *Shared) Run(ctx context.Context) error { return s.follower.Run(ctx) }

// Ready returns nil once the shared index was read and says where shards are.
func (s *Shared) Ready() error {
	if err := s.follower.Ready(); err != nil {
		return err
	}
	if len(s.index.Load().ShardNames()) == 0 {
		return errors.New("the shared index knows no shard yet: the root shard writes them when it runs with it")
	}
	return nil
}

// Sources are where the index comes from, and whether it follows what happens there.
func (s *Shared) Sources() map[string]bool {
	return map[string]bool{"shared index": s.follower.Current() == nil}
}

// WaitForShards blocks until Ready returns nil.
func (s *Shared) WaitForShards(ctx context.Context) error { return waitFor(ctx, s.Ready) }

func (s *Shared) setShard(name string, record sharedindex.Shard) {
	shard := index.Shard{Name: name, Elsewhere: !s.subset.Has(name, record.Labels)}
	if record.BaseURL != "" {
		shard.BaseURL, shard.Err = parseBaseURL(record.BaseURL)
	}
	s.index.SetShard(shard)
}

func (s *Shared) removeShard(name string) {
	s.index.RemoveShard(name)
	if s.types != nil {
		s.types.RemoveShard(name)
	}
}

// reading is a sharedindex.Reader. The fields are of the list of one shard, while it is read.
type reading struct {
	*Shared
	clusters   []index.Cluster
	workspaces []index.Workspace
	types      map[workspacetypes.Key][]string
	issuers    map[workspacetypes.Key][]tenancyv1alpha1.JWTAuthenticator
	shards     map[string]sharedindex.Shard
}

var _ sharedindex.Reader = &reading{}

// Begin implements sharedindex.Reader.
func (r *reading) Begin(string) {
	*r = reading{Shared: r.Shared, types: map[workspacetypes.Key][]string{}, issuers: map[workspacetypes.Key][]tenancyv1alpha1.JWTAuthenticator{}, shards: map[string]sharedindex.Shard{}}
}

// Record implements sharedindex.Reader.
func (r *reading) Record(key sharedindex.Key, value []byte) {
	r.read(sharedindex.Change{Key: key, Value: value}, visitor{
		cluster:   func(c index.Cluster) { r.clusters = append(r.clusters, c) },
		workspace: func(w index.Workspace) { r.workspaces = append(r.workspaces, w) },
		kind:      func(key workspacetypes.Key, names []string) { r.types[key] = names },
		issuers:   func(key workspacetypes.Key, jwt []tenancyv1alpha1.JWTAuthenticator) { r.issuers[key] = jwt },
		shard:     func(name string, shard sharedindex.Shard) { r.shards[name] = shard },
	})
}

// End implements sharedindex.Reader.
func (r *reading) End(shard string, complete bool) {
	if shard == sharedindex.RootShard {
		r.endShards(complete)
	}
	if !complete {
		// The shard is writing, or etcd lost its records: what was known stays.
		for _, c := range r.clusters {
			r.index.PutCluster(shard, c)
		}
		for _, w := range r.workspaces {
			r.index.PutWorkspace(shard, w)
		}
		r.endTypes(shard, false)
	} else {
		r.index.ReplaceClusters(shard, r.clusters)
		r.index.ReplaceWorkspaces(shard, r.workspaces)
		r.endTypes(shard, true)
	}
	r.Begin("") // the next one; nothing of this one stays in memory
}

func (r *reading) endShards(complete bool) {
	for name, record := range r.shards {
		r.setShard(name, record)
	}
	if !complete {
		return
	}
	for _, name := range r.index.Load().ShardNames() {
		if _, there := r.shards[name]; !there {
			r.removeShard(name)
		}
	}
}

func (r *reading) endTypes(shard string, complete bool) {
	if r.Shared.types == nil {
		return
	}
	if complete {
		r.Shared.types.ReplaceTypes(shard, maps.Clone(r.types))
		r.Shared.types.ReplaceConfigurations(shard, maps.Clone(r.issuers))
		return
	}
	for key, names := range r.types {
		r.Shared.types.PutType(shard, key, names)
	}
	for key, jwt := range r.issuers {
		r.Shared.types.PutConfiguration(shard, key, jwt)
	}
}

// Incomplete implements sharedindex.Reader.
func (r *reading) Incomplete(shard string) { r.index.SetUnread(shard) }

// Changed implements sharedindex.Reader.
func (r *reading) Changed(shard string, change sharedindex.Change) {
	gone := change.Value == nil
	r.read(change, visitor{
		cluster: func(c index.Cluster) {
			if gone {
				r.index.DeleteCluster(shard, c.Name)
				return
			}
			r.index.PutCluster(shard, c)
		},
		workspace: func(w index.Workspace) { r.index.PutWorkspace(shard, w) }, // one that leads nowhere is not kept
		kind: func(key workspacetypes.Key, names []string) {
			if r.Shared.types != nil {
				r.Shared.types.PutType(shard, key, names)
			}
		},
		issuers: func(key workspacetypes.Key, jwt []tenancyv1alpha1.JWTAuthenticator) {
			if r.Shared.types != nil {
				r.Shared.types.PutConfiguration(shard, key, jwt)
			}
		},
		shard: func(name string, record sharedindex.Shard) {
			switch {
			case shard != sharedindex.RootShard: // no shard says what other shards are
			case gone:
				r.removeShard(name)
			default:
				r.setShard(name, record)
			}
		},
	})
}

// visitor takes a record by its kind.
type visitor struct {
	cluster   func(index.Cluster)
	workspace func(index.Workspace)
	kind      func(workspacetypes.Key, []string)
	issuers   func(workspacetypes.Key, []tenancyv1alpha1.JWTAuthenticator)
	shard     func(string, sharedindex.Shard)
}

// read hands a record to the visitor; one that is gone has no value, and its zero record says so. An odd record is logged
// and left out: it must not hide others.
func (r *reading) read(change sharedindex.Change, v visitor) {
	key := change.Key
	object := workspacetypes.Key{Cluster: key.Cluster, Name: key.Name}
	var err error
	switch key.Kind {
	case sharedindex.Clusters:
		err = with(change, func(c sharedindex.Cluster) error {
			v.cluster(index.Cluster{Name: key.Cluster, Type: c.Type})
			return nil
		})
	case sharedindex.Workspaces:
		err = with(change, func(w sharedindex.Workspace) error {
			workspace, err := leading(key.Cluster, key.Name, w)
			if err == nil {
				v.workspace(workspace)
			}
			return err
		})
	case sharedindex.Types:
		err = with(change, func(t sharedindex.Type) error { v.kind(object, t.Configurations); return nil })
	case sharedindex.Issuers:
		err = with(change, func(i sharedindex.IssuersOf) error { v.issuers(object, i.JWT); return nil })
	case sharedindex.Shards:
		err = with(change, func(s sharedindex.Shard) error { v.shard(key.Name, s); return nil })
	}
	if err != nil {
		klog.ErrorS(err, "Ignoring a record of the shared index", "kind", key.Kind, "cluster", key.Cluster, "name", key.Name)
	}
}

func with[T any](change sharedindex.Change, take func(T) error) error {
	var record T
	if change.Value != nil {
		var err error
		if record, err = sharedindex.Decode[T](change.Value); err != nil {
			return err
		}
	}
	return take(record)
}

// waitFor blocks until ready returns nil, or the context ends.
func waitFor(ctx context.Context, ready func() error) error {
	err := wait.PollUntilContextCancel(ctx, startPoll, true, func(context.Context) (bool, error) { return ready() == nil, nil })
	if err != nil {
		return fmt.Errorf("waiting for the shards: %w", errors.Join(err, ready()))
	}
	return nil
}
