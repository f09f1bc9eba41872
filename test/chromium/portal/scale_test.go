package portal

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestScale opens the console with as many workspaces below one as CONSOLE_WORKSPACES says, more than 500, and logs how long that takes. It is
// not part of CI, because it creates them.
func TestScale(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("CONSOLE_WORKSPACES"))
	if err != nil || count <= 500 {
		t.Skip("CONSOLE_WORKSPACES is not a number above 500")
	}
	e := newEnv(t, readTemplates(t))
	parent := e.shard.NewWorkspace(t, "root", "large").Spec.Cluster
	create := func(i int) error {
		workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w%06d", i)}}
		return e.shard.Client(t, e.shard.Admin(t)).Create(shardtesting.In(t.Context(), parent), workspace)
	}
	var running sync.WaitGroup
	failed := make([]error, 8)
	for worker := range failed {
		running.Go(func() {
			for i := worker; i < count && failed[worker] == nil; i += len(failed) {
				failed[worker] = create(i)
			}
		})
	}
	running.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	page := e.openConsole(t, "operator-token", "workspaces")
	page.WaitTitle("Workspaces")
	page.Wait("root", item("root:large"))
	began := time.Now()
	page.Click(item("root:large") + "?.querySelector('.twist')")
	page.WaitText("Show more than 500")
	t.Logf("the first of %d workspaces were there after %s", count, time.Since(began))
	const lines = "document.querySelectorAll('[data-path^=\"root:large:\"]').length"
	if shown := page.String("String(" + lines + ")"); shown != "500" {
		t.Errorf("%s lines at first", shown)
	}
	began = time.Now()
	page.Click("[...document.querySelectorAll('.note')].find((e) => e.innerText.startsWith('Show more'))")
	page.Wait("a second page", fmt.Sprintf("%s === %d", lines, min(count, 1000)))
	t.Logf("a page more after %s", time.Since(began))
	began = time.Now()
	page.Open(e.consoleAt(fmt.Sprintf("workspaces/root:large:w%06d", count-1)))
	page.WaitText("Phase inside")
	t.Logf("the last one, opened by its path, after %s", time.Since(began))
	e.quiet(t, page)
}
