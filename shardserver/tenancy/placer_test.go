package tenancy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/shardserver/tenancy/scheduling"
)

// createStorage records what is created, or fails.
type createStorage struct {
	storage.Interface
	created runtime.Object
	err     error
}

func (s *createStorage) Create(_ context.Context, _ string, obj, _ runtime.Object, _ uint64) error {
	s.created = obj
	return s.err
}

// TestPlacerCancelsFailedCreations matters because failed creations that count would fill a shard without a workspace.
func TestPlacerCancelsFailedCreations(t *testing.T) {
	exists := errors.New("exists")
	for name, tc := range map[string]struct {
		leading     bool
		err         error
		wantPlaced  bool
		wantCancels int
	}{
		"leader":                            {leading: true, wantPlaced: true},
		"leader, the creation fails":        {leading: true, err: exists, wantPlaced: true, wantCancels: 1},
		"other replica":                     {},
		"other replica, the creation fails": {err: exists},
	} {
		t.Run(name, func(t *testing.T) {
			cancels := 0
			placer := &Placer{place: func(_ context.Context, workspace *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Workspace, func()) {
				placed := workspace.DeepCopy()
				setPlacement(placed, newShard("own"))
				return placed, func() { cancels++ }
			}}
			into := &createStorage{err: tc.err}
			workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				go placer.Run(ctx)
				if !tc.leading {
					stop()
				}
				synctest.Wait()
				if err := placer.Storage(into).Create(t.Context(), "team", workspace, nil, 0); !errors.Is(err, tc.err) {
					t.Errorf("got %v, want %v", err, tc.err)
				}
				stop()
			})
			created, _ := into.created.(*tenancyv1alpha1.Workspace)
			if got := created.Annotations[corev1alpha1.ShardAnnotationKey] == "own"; got != tc.wantPlaced || cancels != tc.wantCancels {
				t.Errorf("placed %t, %d cancelled; want %t, %d", got, cancels, tc.wantPlaced, tc.wantCancels)
			}
			if len(workspace.Annotations) != 0 || len(workspace.Finalizers) != 0 {
				t.Errorf("the request's object was changed: %+v", workspace)
			}
		})
	}
}

// TestChooseShardWithInvalidURL matters because refused choices that count would fill the shard before its URL is mended.
func TestChooseShardWithInvalidURL(t *testing.T) {
	c := &workspaceController{scheduler: scheduling.New("own", nil)}
	one := shardingv1alpha1.ShardReportSpec{Capacity: corev1.ResourceList{placementrules.LogicalClusters: *resource.NewQuantity(1, resource.DecimalSI)}}
	invalid := newShard("own", func(shard *corev1alpha1.Shard) { shard.Spec = corev1alpha1.ShardSpec{ExternalURL: "none"} })
	workspace := &tenancyv1alpha1.Workspace{}
	for range 2 {
		if _, refused := selectShard(workspace, []*corev1alpha1.Shard{invalid}, c.choose(one)); refused == nil || refused.reason != tenancyv1alpha1.ReasonUnknown {
			t.Errorf("got %+v", refused)
		}
	}
	valid := []*corev1alpha1.Shard{newShard("own")}
	if _, err := c.choose(one)(valid, labels.Everything()); err != nil {
		t.Error(err)
	}
	if _, err := c.choose(one)(valid, labels.Everything()); err == nil {
		t.Error("a valid choice does not count")
	}
}
