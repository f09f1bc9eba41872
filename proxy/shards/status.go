package shards

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// resourceStatus is the status of the watch of one resource of a shard. It logs an outage once.
type resourceStatus struct {
	shard, resource string
	// identity is that of the export of the resource; nil if it has none.
	identity *exportIdentity

	mu      sync.Mutex
	synced  bool
	failure error
}

// get returns whether a complete list was ever received, and the last failure since then.
func (s *resourceStatus) get() (synced bool, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced, s.failure
}

// pending reports whether neither a list nor a failure was received.
func (s *resourceStatus) pending() bool {
	synced, failure := s.get()
	return !synced && failure == nil
}

// connected reports whether the resource is synced and watched.
func (s *resourceStatus) connected() bool {
	synced, failure := s.get()
	return synced && failure == nil
}

func (s *resourceStatus) setFailure(err error) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = s.failure == nil
	s.failure = err
	return first
}

// OnConnect implements reflector.Handler.
func (s *resourceStatus) OnConnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced && s.failure != nil {
		klog.InfoS("Watching a shard again", "shard", s.shard, "resource", s.resource)
	}
	s.synced, s.failure = true, nil
}

// OnDisconnect implements reflector.Handler.
func (s *resourceStatus) OnDisconnect(err error) {
	if apierrors.IsNotFound(err) && s.identity != nil {
		s.identity.invalidate()
	}
	if s.setFailure(err) {
		klog.ErrorS(err, "Failed to watch a shard, will retry; its last known state stays in use", "shard", s.shard, "resource", s.resource)
	}
}
