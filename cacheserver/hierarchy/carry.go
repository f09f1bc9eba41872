package hierarchy

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/metrics"
)

// errNotYet says that an item waits for others.
var errNotYet = errors.New("not yet")

// carry does what is to be done about one object.
func (c *Carrier) carry(ctx context.Context, of item) error {
	if !c.here.open(of.gvr) || !c.above.open(of.gvr) {
		return nil // the sweep comes back to it
	}
	f := c.facts(of)
	var err error
	switch wanted := decide(f); wanted {
	case createUp, updateUp:
		err = c.write(ctx, of, f.here, f.above, c.config.Here, c.config.Parent, c.above, ViaAnnotation, c.config.Name)
		count(err, "up")
	case createDown, updateDown:
		err = c.write(ctx, of, f.above, f.here, c.config.Parent, c.config.Here, c.here, DownAnnotation, "true")
		count(err, "down")
	case deleteUp:
		err = c.remove(ctx, of, f.above, c.config.Parent)
		count(err, "up")
	case deleteDown:
		err = c.remove(ctx, of, f.here, c.config.Here)
		count(err, "down")
	case contested:
		c.log.V(2).Info("A shard publishes in more than one cache; this object stays as it is in each", "resource", of.gvr.GroupResource(), "key", of.key)
	}
	if err == nil {
		c.here.settled(of)
		c.above.settled(of)
	}
	return err
}

func count(err error, direction string) {
	if err == nil {
		metrics.ParentWrites.WithLabelValues(direction).Inc()
	}
}

// write puts a copy of an object of one cache into the other, with a mark. What stands there has to be what was decided
// about; otherwise the stream brings news.
func (c *Carrier) write(ctx context.Context, of item, source, target copied, from, to *client.Client, in *side, annotation, value string) error {
	incomplete := false
	if of.gvr == client.Reports && of.key == reportKey(of.key.Shard) && !in.complete.Now(of.key.Shard) {
		// What the report says has to be true where it arrives. Afterwards it stays true: what is still on its way then
		// is late, not missing.
		waits, tooLong := c.waits(of.key.Shard)
		if waits && !tooLong {
			return errNotYet
		}
		incomplete = waits
	}
	object, err := c.standing(ctx, of, source, from)
	if err != nil {
		return err
	}
	content, err := mark(object, annotation, value)
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
	standing, err := c.standing(ctx, of, target, to)
	if err != nil {
		return err
	}
	if standing.Meta.UID != content.GetUID() { // the original was deleted and created again
		if err := to.Delete(ctx, of.gvr, of.key, standing.Meta.UID); err != nil {
			return err
		}
		_, err = to.Create(ctx, of.gvr, of.key.Cluster, content)
		return err
	}
	content.SetResourceVersion(standing.Meta.ResourceVersion)
	_, err = to.Update(ctx, of.gvr, of.key.Cluster, content)
	return err
}

// remove deletes a copy, if it is what was decided about.
func (c *Carrier) remove(ctx context.Context, of item, target copied, from *client.Client) error {
	standing, err := c.standing(ctx, of, target, from)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return from.Delete(ctx, of.gvr, of.key, standing.Meta.UID)
}

// standing reads an object that was decided about. It is errNotYet if it is another one than was thought: the stream
// brings it.
func (c *Carrier) standing(ctx context.Context, of item, thought copied, in *client.Client) (*client.Object, error) {
	object, err := in.Get(ctx, of.gvr, of.key)
	if err != nil {
		return nil, err
	}
	known, err := know(object)
	if err != nil {
		return nil, err
	}
	if known != thought {
		return nil, errNotYet
	}
	return object, nil
}
