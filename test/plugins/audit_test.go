package plugins

import (
	"context"
	"fmt"
	"strings"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

func testAudit(t *testing.T, i *installation.Installation) {
	i.NewWorkspace(t, "audited", "auditor", shardtesting.OnShard(installation.Alpha))
	u := newUser(t, i, i.User(t, "root:audited", "auditor"))
	u.create("child")
	shardtesting.Eventually(t, "the creation of a workspace", func(context.Context) error {
		got := u.kcp("audit --since 1h")
		if got.err != "" {
			return fmt.Errorf("%s", got.err)
		}
		for line := range strings.Lines(got.out) {
			if words := strings.Fields(line); strings.Join(words[1:], " ") == "auditor create workspaces.tenancy.kcp.io child 201" {
				return nil
			}
		}
		return fmt.Errorf("got:\n%s", got.out)
	})
	contains(t, u.kcp("audit :root:audited --limit 1 -o json").out, `"kind": "EventList"`)
	contains(t, u.kcp("audit --limit 20000").err, "limit: got")
	stranger := newUser(t, i, i.User(t, "root:audited", "stranger"))
	if got := stranger.kcp("audit"); got.err == "" || got.out != "" {
		t.Errorf("a stranger gets %+v", got)
	}
}
