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
func (c *Syncer) sync(ctx context.Context, of item) error {
	if !c.local.connected(of.gvr) || !c.parent.connected(of.gvr) {
		return nil // the next resync retries
	}
	f := c.facts(of)
	var err error
	switch wanted := decide(f); wanted {
	case createUp, updateUp:
		err = c.write(ctx, of, f.local, f.parent, c.config.Local, c.config.Parent, c.parent, ViaAnnotation, c.config.Name)
		count(err, "up")
	case createDown, updateDown:
		err = c.write(ctx, of, f.parent, f.local, c.config.Parent, c.config.Local, c.local, DownAnnotation, "true")
		count(err, "down")
	case deleteUp:
		err = c.remove(ctx, of, f.parent, c.config.Parent)
		count(err, "up")
	case deleteDown:
		err = c.remove(ctx, of, f.local, c.config.Local)
		count(err, "down")
	case conflict:
		c.log.V(2).Info("A shard publishes in more than one cache; this object is not synchronized", "resource", of.gvr.GroupResource(), "key", of.key)
	}
	if err == nil {
		c.local.clearDeletion(of)
		c.parent.clearDeletion(of)
	}
	return err
}

func count(err error, direction string) {
	if err == nil {
		metrics.ParentWrites.WithLabelValues(direction).Inc()
	}
}

// write copies an object of one cache into the other, with an annotation. The existing copy must be the one that was
// decided about; otherwise an event follows.
func (c *Syncer) write(ctx context.Context, of item, source, target summary, from, to *client.Client, in *cacheState, annotation, value string) error {
	incomplete := false
	if of.gvr == client.Reports && of.key == reportKey(of.key.Shard) && !in.complete.Now(of.key.Shard) {
		// A complete report must be true in the target cache. It stays true: objects that follow later are new ones.
		mustWait, tooLong := c.mustWait(of.key.Shard)
		if mustWait && !tooLong {
			return errWait
		}
		incomplete = mustWait
	}
	object, err := c.getUnchanged(ctx, of, source, from)
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
	to = to.As(of.key.Shard)
	if !target.exists {
		_, err = to.Create(ctx, of.gvr, of.key.Cluster, content)
		return err
	}
	existing, err := c.getUnchanged(ctx, of, target, to)
	if err != nil {
		return err
	}
	if existing.Meta.UID != content.GetUID() { // the original was deleted and created again
		if err := to.Delete(ctx, of.gvr, of.key, existing.Meta.UID); err != nil {
			return err
		}
		_, err = to.Create(ctx, of.gvr, of.key.Cluster, content)
		return err
	}
	content.SetResourceVersion(existing.Meta.ResourceVersion)
	_, err = to.Update(ctx, of.gvr, of.key.Cluster, content)
	return err
}

// remove deletes a copy, if it is the one that was decided about.
func (c *Syncer) remove(ctx context.Context, of item, target summary, from *client.Client) error {
	existing, err := c.getUnchanged(ctx, of, target, from)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return from.Delete(ctx, of.gvr, of.key, existing.Meta.UID)
}

// getUnchanged reads an object. It returns errWait if the object is not the one that was decided about: an event
// follows.
func (c *Syncer) getUnchanged(ctx context.Context, of item, thought summary, in *client.Client) (*client.Object, error) {
	object, err := in.Get(ctx, of.gvr, of.key)
	if err != nil {
		return nil, err
	}
	known, err := summarize(object)
	if err != nil {
		return nil, err
	}
	if known != thought {
		return nil, errWait
	}
	return object, nil
}
