package plugins

import (
	"context"
	"fmt"
	"strings"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

func testUsage(t *testing.T, i *installation.Installation) {
	i.NewWorkspace(t, "metered", "spender", shardtesting.OnShard(installation.Alpha))
	u := newUser(t, i, i.Admin(t, "root"))
	u.create("child -w :root:metered --location-selector name=" + installation.Beta)
	shardtesting.Eventually(t, "the usage of both workspaces, which are on different shards", func(context.Context) error {
		got := u.kcp("usage :root:metered -o csv")
		if got.err != "" {
			return fmt.Errorf("%s", got.err)
		}
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "month,workspace,requests,") {
			return fmt.Errorf("got:\n%s", got.out)
		}
		for n, path := range []string{"root:metered", "root:metered:child"} {
			if values := strings.Split(lines[n+1], ","); len(values) != 13 || values[1] != path || values[2] == "0" || values[12] == "" {
				return fmt.Errorf("%s has %q", path, lines[n+1])
			}
		}
		return nil
	})
	if got := u.kcp("usage :root:metered --sum"); got.err != "" || len(strings.Split(strings.TrimSpace(got.out), "\n")) != 3 {
		t.Errorf("got %+v", got)
	}
	contains(t, u.kcp("usage :root:missing").err, "the output is not complete", `workspace "root:missing"`)
	stranger := newUser(t, i, i.User(t, "root:metered", "stranger"))
	contains(t, stranger.kcp("usage :root:metered").err, "the output is not complete", `workspace "root:metered"`)
}
