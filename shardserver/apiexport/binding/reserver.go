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

// definitionReservationTTL is how long a resource is reserved for a CustomResourceDefinition that is being created.
const definitionReservationTTL = time.Minute

// ErrReserved means that a resource is reserved for a binding, or that reservations are not readable yet.
var ErrReserved = errors.New("the resource cannot be reserved")

// Reserver reserves resources for CustomResourceDefinitions that are being created, so that no binding acquires them.
type Reserver struct {
	// Clusters reads the LogicalClusters, which store the reservations.
	Clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	// Client writes them.
	Client client.Client
	Clock  clock.PassiveClock
}

// Reserve reserves a resource of the context's logical cluster for a CustomResourceDefinition; with dryRun it only
// checks. It fails with ErrReserved if the resource is reserved for a binding, or without readable reservations.
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

// reserve adds an expiring reservation for a CustomResourceDefinition unless a permanent one exists.
func (r reservations) reserve(resource schema.GroupResource, now time.Time) (changed bool, err error) {
	current, ok := r[resource.String()]
	switch {
	case ok && !current.Definition:
		return false, fmt.Errorf("%w: it is bound by %s", ErrReserved, current.describeOwner(resource.String()))
	case ok && current.Expiry == nil:
		return false, nil
	}
	until := metav1.NewTime(now.Add(definitionReservationTTL))
	r[resource.String()] = reservation{Definition: true, Expiry: &until}
	return true, nil
}
