package apiexport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// pause is between two looks at all open watches, however often exports change.
const pause = 500 * time.Millisecond

// Streams are the open watches in virtual workspaces of exports. They are authorized when they begin, and end when the
// consumer no longer lets the provider see what they show, or when the export no longer offers it as it did. What is
// kept follows the number of open watches.
type Streams struct {
	authorizer stepsAuthorizer
	bindings   *storage.Reader[*apisv1alpha2.APIBinding]
	// exports has an element while an export has changed and nobody has looked at the watches yet.
	exports chan struct{}

	mu   sync.Mutex
	open map[logicalcluster.Name]map[*stream]struct{}
}

// stream is an open watch.
type stream struct {
	call       *call
	attributes authorizer.Attributes
	// privileged callers need nobody's consent.
	privileged bool
	cancel     context.CancelFunc
}

func newStreams(authorizer stepsAuthorizer, reader *storage.Reader[*apisv1alpha2.APIBinding]) *Streams {
	return &Streams{authorizer: authorizer, bindings: reader, exports: make(chan struct{}, 1), open: map[logicalcluster.Name]map[*stream]struct{}{}}
}

// Open returns how many watches are open.
func (s *Streams) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, of := range s.open {
		count += len(of)
	}
	return count
}

// follow has a watch end when it must. Other requests are left alone.
func (s *Streams) follow(req *http.Request, c *call) (followed *http.Request, done func()) {
	if c.info.Verb != "watch" {
		return req, func() {}
	}
	attributes, err := endpointfilters.GetAuthorizerAttributes(req.Context())
	if err != nil {
		return req, func() {} // it was authorized with them
	}
	ctx, cancel := context.WithCancel(req.Context())
	added := &stream{
		call: c, attributes: attributes, cancel: cancel,
		privileged: slices.Contains(attributes.GetUser().GetGroups(), user.SystemPrivilegedGroup),
	}
	s.add(added)
	s.look(ctx, added) // what it was authorized by may have changed before it was known here
	return req.WithContext(ctx), func() { s.remove(added); cancel() }
}

func (s *Streams) add(added *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cluster := added.call.target.Cluster
	if s.open[cluster] == nil {
		s.open[cluster] = map[*stream]struct{}{}
	}
	s.open[cluster][added] = struct{}{}
}

func (s *Streams) remove(gone *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cluster := gone.call.target.Cluster
	delete(s.open[cluster], gone)
	if len(s.open[cluster]) == 0 {
		delete(s.open, cluster)
	}
}

// in returns the watches on the logical clusters that are chosen.
func (s *Streams) in(chosen func(logicalcluster.Name) bool) []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*stream
	for cluster, of := range s.open {
		if !chosen(cluster) {
			continue
		}
		for one := range of {
			found = append(found, one)
		}
	}
	return found
}

// look ends a watch that could not begin now, or not as it is.
func (s *Streams) look(ctx context.Context, one *stream) {
	if err := s.holds(ctx, one); err != nil {
		klog.FromContext(ctx).V(4).Info("A watch in the virtual workspace of an export ends", "cluster", one.call.target.Cluster, "resource", one.call.offered.GroupResource, "reason", err)
		one.cancel()
	}
}

var errChanged = errors.New("the export offers something else")

func (s *Streams) holds(ctx context.Context, one *stream) error {
	set, err := setFor(ctx, s.authorizer.exports, one.call.target)
	if err != nil {
		return err
	}
	found, err := set.find(ctx, one.call.offered.GroupResource)
	if err != nil {
		return err
	}
	if !same(found, one.call.offered) {
		return errChanged
	}
	if one.privileged {
		return nil
	}
	asked := question{Attributes: one.attributes, set: set, cluster: one.call.target.Cluster}
	if got := s.authorizer.boundAPI(ctx, asked); !got.allowed {
		return fmt.Errorf("%s: %w", got.reason, errors.Join(errChanged, got.err))
	}
	return nil
}

// same tells whether what is offered now looks as it did before.
func same(now, before *offer) bool {
	schemaOf := func(o *offer) types.UID {
		if o.described == nil {
			return ""
		}
		return o.described.UID
	}
	return now != nil && now.identity == before.identity && schemaOf(now) == schemaOf(before) && (now.claim == nil) == (before.claim == nil)
}

// exportChanged is told of every change of an export.
func (s *Streams) exportChanged(bindings.Export) {
	select {
	case s.exports <- struct{}{}:
	default: // somebody will look
	}
}

// Run follows bindings and exports until the context ends. Every replica of a shard runs its own.
func (s *Streams) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.followExports(ctx) })
	informer.NewWithHandler(s.bindings.Resource(), s.bindings.WatchAll, informer.EventHandler[*apisv1alpha2.APIBinding]{
		OnReplace: func(context.Context, []*apisv1alpha2.APIBinding, string) error {
			s.exportChanged(bindings.Export{}) // checks all watches: bindings may have been deleted
			return nil
		},
		OnAdd:    s.bindingChanged,
		OnUpdate: s.bindingChanged,
		OnDelete: s.bindingChanged,
	}).Run(ctx)
}

func wait(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

func (s *Streams) followExports(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.exports:
		}
		for _, one := range s.in(func(logicalcluster.Name) bool { return true }) {
			s.look(ctx, one)
		}
		wait(ctx, pause)
	}
}

// bindingChanged checks the watches on the logical cluster of a binding.
func (s *Streams) bindingChanged(ctx context.Context, binding *apisv1alpha2.APIBinding) error {
	cluster := logicalcluster.Of(binding)
	for _, one := range s.in(func(name logicalcluster.Name) bool { return name == cluster }) {
		s.look(ctx, one)
	}
	return nil
}
