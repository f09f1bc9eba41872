package hierarchy

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/metrics"
)

// errWait is returned for an item that must wait for others.
var errWait = errors.New("waiting for other objects")

// sync brings one object to its desired state.
func (s *Syncer) sync(ctx context.Context, ref objectRef) error {
	if !s.local.connected(ref.gvr) || !s.parent.connected(ref.gvr) {
		return nil // the next resync retries
	}
	f := s.observe(ref)
	var err error
	switch desired := decide(f); desired {
	case createInParent, updateInParent:
		err = s.write(ctx, ref, f.local, f.parent, s.config.Local, s.config.Parent, s.parent, ViaAnnotation, s.config.Name)
		countWrite(err, "up")
	case createLocal, updateLocal:
		err = s.write(ctx, ref, f.parent, f.local, s.config.Parent, s.config.Local, s.local, DownAnnotation, "true")
		countWrite(err, "down")
	case deleteInParent:
		err = s.remove(ctx, ref, f.parent, s.config.Parent)
		countWrite(err, "up")
	case deleteLocal:
		err = s.remove(ctx, ref, f.local, s.config.Local)
		countWrite(err, "down")
	case conflict:
		s.log.V(2).Info("A shard publishes in more than one cache; this object is not synchronized", "resource", ref.gvr.GroupResource(), "key", ref.key)
	}
	if err == nil {
		s.local.clearDeletion(ref)
		s.parent.clearDeletion(ref)
	}
	return err
}

func countWrite(err error, direction string) {
	if err == nil {
		metrics.ParentWrites.WithLabelValues(direction).Inc()
	}
}

// write copies an object of one cache into the other, with an annotation. The existing copy must be the one that was
// decided about; otherwise an event follows.
func (s *Syncer) write(ctx context.Context, ref objectRef, source, target summary, from, to *client.Client, targetState *cacheState, annotation, value string) error {
	incomplete := false
	if ref.gvr == client.Reports && ref.key == reportKey(ref.key.Shard) && !targetState.complete.IsComplete(ref.key.Shard) {
		// A complete report must be true in the target cache. It stays true: objects that follow later are new ones.
		mustWait, tooLong := s.mustWait(ref.key.Shard)
		if mustWait && !tooLong {
			return errWait
		}
		incomplete = mustWait
	}
	object, err := s.getUnchanged(ctx, ref, source, from)
	if err != nil {
		return err
	}
	content, err := annotate(object, annotation, value)
	if err != nil {
		return err
	}
	if incomplete {
		unstructured.RemoveNestedField(content.Object, "spec", "complete")
	}
	to = to.ForShard(ref.key.Shard)
	if !target.exists {
		_, err = to.Create(ctx, ref.gvr, ref.key.Cluster, content)
		return err
	}
	existing, err := s.getUnchanged(ctx, ref, target, to)
	if err != nil {
		return err
	}
	if existing.Meta.UID != content.GetUID() { // the original was deleted and created again
		if err := to.Delete(ctx, ref.gvr, ref.key, existing.Meta.UID); err != nil {
			return err
		}
		_, err = to.Create(ctx, ref.gvr, ref.key.Cluster, content)
		return err
	}
	content.SetResourceVersion(existing.Meta.ResourceVersion)
	_, err = to.Update(ctx, ref.gvr, ref.key.Cluster, content)
	return err
}

// remove deletes a copy, if it is the one that was decided about.
func (s *Syncer) remove(ctx context.Context, ref objectRef, target summary, from *client.Client) error {
	existing, err := s.getUnchanged(ctx, ref, target, from)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return from.Delete(ctx, ref.gvr, ref.key, existing.Meta.UID)
}

// getUnchanged reads an object. It returns errWait if the object is not the one that was decided about: an event
// follows.
func (s *Syncer) getUnchanged(ctx context.Context, ref objectRef, expected summary, from *client.Client) (*client.Object, error) {
	object, err := from.Get(ctx, ref.gvr, ref.key)
	if err != nil {
		return nil, err
	}
	current, err := summarize(object)
	if err != nil {
		return nil, err
	}
	if current != expected {
		return nil, errWait
	}
	return object, nil
}
