package migration

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// TestBegin: an attempt after one that has failed to copy does not look like progress, one after the origin was away does.
func TestBegin(t *testing.T) {
	const uid = types.UID("6a1d")
	for name, tc := range map[string]struct{ before, want progress }{
		"the first attempt":               {},
		"after one that failed to copy":   {progress{entries: 7, reason: migrationv1alpha1.ReasonCopyFailed, message: "too large"}, progress{entries: 7, reason: migrationv1alpha1.ReasonCopyFailed, message: "too large"}},
		"after one that could not begin":  {progress{reason: migrationv1alpha1.ReasonWaitingForDestination, message: "no address"}, progress{}},
		"after one that copied something": {progress{entries: 7}, progress{}},
	} {
		d := &destinationService{cfg: Config{changed: newChanges(), changedOfHome: newChanges(), changedOfParent: newChanges()}, progress: map[types.UID]progress{uid: tc.before}}
		d.begin(controller.Request{}, uid)
		if got := d.progress[uid]; got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}
