package limits

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/objectcount"
)

// smallObject is the size, in bytes of JSON, of objects and of additions that are always accepted in an update: leases, and
// the metadata that an update adds while it removes a finalizer.
const smallObject = 4 << 10

// countSeconds is after how many seconds a client retries while a logical cluster is being counted.
const countSeconds = 1

// reasonInsufficientStorage is the reason of refusals because the etcd of the shard is full, with the HTTP status of that
// name. Upstream has no constant: it answers with what etcd says.
const reasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"

var leases = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// byteLimit enforces the byte limit of logical clusters, and keeps tenants from filling the etcd of the shard. It refuses
// creations and updates that make objects larger, events and status included. The system itself may always write: etcd
// accepts deletions whatever its size, but the removal of a finalizer before the deletion is a write.
// It notes what is deleted or becomes smaller, which makes room.
type byteLimit struct {
	*admission.Handler
	counts *objectcount.Tracker
	space  func() etcdkeys.Space
}

// NewByteLimit returns the plug-in core.kcp.io/LogicalClusterByteLimit.
func NewByteLimit(config rules.Config) admission.Interface {
	return &byteLimit{
		Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		counts:  config.Counts,
		space:   config.Space,
	}
}

// Validate implements admission.ValidationInterface. The sizes of objects are compared only if something is short.
func (l *byteLimit) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if l.counts == nil {
		return nil
	}
	name, ok := logicalcluster.From(ctx)
	if !ok {
		return apierrors.NewInternalError(rules.ErrNoCluster)
	}
	if a.GetOperation() == admission.Delete {
		l.counts.NoteShrinking(name, time.Now())
		return nil
	}
	if rules.InAnyGroup(a.GetUserInfo(), user.SystemPrivilegedGroup, authorization.GroupShard) || storesNothing(a) {
		return nil
	}
	if level := l.space().Level(); level != etcdkeys.SpaceOK {
		growth, _, err := growthOf(a)
		if err != nil {
			return err
		}
		if growth == grows || growth == rewrites && level == etcdkeys.SpaceCritical {
			return newInsufficientStorage()
		}
	}
	usage, err := l.counts.CheckBytes(ctx, name)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("reading the byte limit of logical cluster %q: %w", name, err))
	}
	if usage.State == objectcount.BytesFit {
		return nil
	}
	growth, added, err := growthOf(a)
	if err != nil {
		return err
	}
	if growth == shrinks {
		l.counts.NoteShrinking(name, time.Now())
	}
	if growth != grows {
		return nil
	}
	if usage.State == objectcount.BytesUncertain {
		if a.IsDryRun() || l.counts.Grant(name, int64(added)) {
			return nil
		}
		return apierrors.NewTooManyRequests(fmt.Sprintf("logical cluster %q may have reached its byte limit of %d bytes, its objects are being counted; retry in a moment", name, usage.Limit), countSeconds)
	}
	return rules.Forbid(a, "logical cluster %q has reached its byte limit (%d/%d bytes), delete objects to store others; this is noticed within seconds", name, usage.Counted, usage.Limit)
}

// storesNothing reports whether a request stores nothing, or an object that is part of every logical cluster.
func storesNothing(a admission.Attributes) bool {
	return a.GetOperation() == admission.Create && (a.GetSubresource() != "" || isUncounted(a))
}

func newInsufficientStorage() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: reasonInsufficientStorage,
		Message: "the storage of this shard is almost full: until its administrator provides more, or objects are deleted, only deletions and updates that make objects smaller are accepted",
	}}
}

// growth is how a request changes the size of what is stored.
type growth int

const (
	// shrinks is the growth of updates that store less, and of those without which leases and deletions do not work.
	shrinks growth = iota
	// rewrites is that of updates of the same size: until etcd compacts, it has both.
	rewrites
	grows
)

// growthOf compares the sizes of the old and the new object in JSON, which is what users see, whatever the encoding in etcd,
// and returns the bytes that an object that grows adds.
func growthOf(a admission.Attributes) (how growth, added int, err error) {
	after, err := jsonSize(a.GetObject())
	if err != nil {
		return grows, 0, err
	}
	if a.GetOperation() == admission.Create {
		return grows, after, nil
	}
	before, err := jsonSize(a.GetOldObject())
	if err != nil {
		return grows, 0, err
	}
	switch {
	case after < before,
		after <= smallObject && a.GetResource().GroupResource() == leases,
		after-before <= smallObject && finishesDeletion(a):
		return shrinks, 0, nil
	case after == before:
		return rewrites, 0, nil
	}
	return grows, after - before, nil
}

func jsonSize(obj runtime.Object) (int, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("measuring the object: %w", err))
	}
	return len(raw), nil
}

// finishesDeletion reports whether an update brings an object closer to its deletion. An object that is being deleted gets
// no new finalizers, so that there are few such updates.
func finishesDeletion(a admission.Attributes) bool {
	before, err := meta.Accessor(a.GetOldObject())
	if err != nil || before.GetDeletionTimestamp() == nil {
		return false
	}
	after, err := meta.Accessor(a.GetObject())
	return err == nil && len(after.GetFinalizers()) < len(before.GetFinalizers())
}
