package binding

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// definitionReservationTTL is how long a resource is kept for a definition that does not exist yet. Its creation is under way.
const definitionReservationTTL = time.Minute

// ErrReserved says that a resource of a logical cluster belongs to a binding, or that nobody can tell yet.
var ErrReserved = errors.New("the resource cannot be had")

// Reserver keeps resources for definitions that are about to be created, so that no binding takes them meanwhile.
type Reserver struct {
	// Clusters reads the LogicalClusters that hold the locks.
	Clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	// Client writes them.
	Client client.Client
	Clock  clock.PassiveClock
}

// Reserve keeps a resource of the context's logical cluster for a definition for a while, or only tells whether it
// would. It fails with ErrNotYours if a binding has the resource, or if there are no locks yet.
func (r *Reserver) Reserve(ctx context.Context, resource schema.GroupResource, dryRun bool) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cluster, err := r.Clusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: there is no logical cluster", ErrReserved)
		}
		if err != nil {
			return err
		}
		reservations, err := parseReservations(cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey])
		if err != nil {
			return fmt.Errorf("%w: %w", ErrReserved, err)
		}
		changed, err := reservations.reserve(resource, r.Clock.Now())
		if err != nil || !changed || dryRun {
			return err
		}
		_, err = patchReservations(ctx, r.Client, cluster, reservations)
		return err
	})
}

// reserve gives a resource to a definition for a while, unless one has it already.
func (l reservations) reserve(resource schema.GroupResource, now time.Time) (changed bool, err error) {
	current, ok := l[resource.String()]
	switch {
	case ok && !current.Definition:
		return false, fmt.Errorf("%w: it is bound by %s", ErrReserved, current.describeOwner(resource.String()))
	case ok && current.Expiry == nil:
		return false, nil
	}
	until := metav1.NewTime(now.Add(definitionReservationTTL))
	l[resource.String()] = reservation{Definition: true, Expiry: &until}
	return true, nil
}
