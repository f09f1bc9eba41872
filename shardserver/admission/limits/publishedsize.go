package limits

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
)

// The bounds of the size of an object that is published to other shards, in bytes of JSON. A cache server stores it as
// JSON, with etcd's request limit of 1.5 MiB, while this shard may store it in a smaller encoding: other shards never
// get a state that does not fit there.
const (
	// maxPublishedSize applies to all but the status, so that controllers have room for theirs.
	maxPublishedSize = 5 << 18
	// maxPublishedSizeWithStatus applies to the status. The remainder of etcd's limit is for the annotations that
	// publishing adds and for etcd's own encoding.
	maxPublishedSizeWithStatus = 11 << 17
)

// publishedSize bounds the size of objects that are published to other shards.
type publishedSize struct{ *admission.Handler }

// NewPublishedSize returns the plug-in sharding.kcp.io/PublishedSize.
func NewPublishedSize(rules.Config) admission.Interface {
	return &publishedSize{admission.NewHandler(admission.Create, admission.Update)}
}

// Validate implements admission.ValidationInterface. Objects that are too large already can be made smaller, and
// deleted.
func (*publishedSize) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource, published := client.FindResource(a.GetResource().GroupResource())
	if !published || resource.Namespaced || resource.IsRemoteOnly() {
		return nil
	}
	limit := maxPublishedSize
	if a.GetSubresource() != "" {
		limit = maxPublishedSizeWithStatus
	}
	size, err := encodedSize(resource, a.GetObject())
	if err != nil || size <= limit {
		return err
	}
	if a.GetOperation() == admission.Update {
		if before, err := encodedSize(resource, a.GetOldObject()); err != nil || size <= before {
			return err
		}
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s that are published to other shards may have at most %d bytes of JSON, this has %d", resource.GroupResource(), limit, size))
}

func encodedSize(resource client.Resource, obj runtime.Object) (bytes int, err error) {
	raw, err := replica.Encode(resource, obj)
	if err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("measuring an object that is published to other shards: %w", err))
	}
	return len(raw), nil
}
