package migration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/apimachinery/pkg/types"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// TestRetryAt: an attempt that the origin has refused for a time is not repeated before, whatever else changes.
func TestRetryAt(t *testing.T) {
	d := &destinationService{cfg: Config{progressed: controller.NewChanges(nil)}, progress: map[types.UID]progress{}}
	d.fail(controller.Request{}, "a", migrationv1alpha1.ReasonCopyFailed, fmt.Errorf("pausing writes: %w", &retryLaterError{errors.New("too early"), time.Minute}))
	d.fail(controller.Request{}, "b", migrationv1alpha1.ReasonCopyFailed, errors.New("too large"))
	d.begin(controller.Request{}, "a")
	if a, b := time.Until(d.retryAt("a")), time.Until(d.retryAt("b")); a < 50*time.Second || a > time.Minute || b > 0 || time.Until(d.retryAt("c")) > 0 {
		t.Errorf("%s and %s are left", a, b)
	}
}

// TestShortage: a copy ends before etcd is full, and the migration with it.
func TestShortage(t *testing.T) {
	for shortage, want := range map[string]string{"": "", "etcd uses more": `shard "beta" has no space for the copy: etcd uses more: free space there, or move to another shard`} {
		d := &destinationService{cfg: Config{Shard: "beta", Shortage: func() string { return shortage }}}
		err := d.checkSpace()
		if (err == nil) != (want == "") || err != nil && (err.Error() != want || reasonOf(fmt.Errorf("copying: %w", err)) != migrationv1alpha1.ReasonDestinationFull) {
			t.Errorf("%q: %v", shortage, err)
		}
	}
	if got := reasonOf(fmt.Errorf("writing a key: %w", rpctypes.ErrNoSpace)); got != migrationv1alpha1.ReasonDestinationFull {
		t.Errorf("an etcd that is full: %s", got)
	}
	if got := reasonOf(errors.New("another")); got != migrationv1alpha1.ReasonCopyFailed {
		t.Errorf("another error: %s", got)
	}
}

// TestBegin: an attempt after one that has failed to copy does not look like progress, one after the origin was away does.
func TestBegin(t *testing.T) {
	const uid = types.UID("6a1d")
	for name, tc := range map[string]struct{ before, want progress }{
		"the first attempt":               {},
		"after one that failed to copy":   {progress{entries: 7, reason: migrationv1alpha1.ReasonCopyFailed, message: "too large"}, progress{entries: 7, reason: migrationv1alpha1.ReasonCopyFailed, message: "too large"}},
		"after one that had no space":     {progress{reason: migrationv1alpha1.ReasonDestinationFull, message: "full"}, progress{}},
		"after one that could not begin":  {progress{reason: migrationv1alpha1.ReasonWaitingForDestination, message: "no address"}, progress{}},
		"after one that copied something": {progress{entries: 7}, progress{}},
	} {
		d := &destinationService{cfg: Config{progressed: controller.NewChanges(nil)}, progress: map[types.UID]progress{uid: tc.before}}
		d.begin(controller.Request{}, uid)
		if got := d.progress[uid]; got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
		if (&Migrations{destination: d}).ForgetProgress(t.Context()); len(d.progress) > 0 {
			t.Errorf("%s: the controllers start again, and know %+v", name, d.progress)
		}
	}
}
