package plugins

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/test/installation"
)

func testAPIQuickstart(t *testing.T, i *installation.Installation) {
	u := newUser(t, i, i.Admin(t, "root"))
	const steps = `Setting up "api-provider" scenario with prefix "west"...
Step 1/6: Creating the organization...
  Workspace "west-org" created and ready at root:west-org
Step 2/6: Creating the provider's workspace...
  Workspace "west-provider" created and ready at root:west-org:west-provider
Step 3/6: Exporting the API cowboys.wildwest.dev...
  APIResourceSchema "today.cowboys.wildwest.dev" created in root:west-org:west-provider
  APIExport "cowboys" created in root:west-org:west-provider
Step 4/6: Creating the consumer's workspace...
  Workspace "west-consumer" created and ready at root:west-org:west-consumer
Step 5/6: Binding the API...
  APIBinding "cowboys" created and bound in root:west-org:west-consumer
Step 6/6: Creating a cowboy...
  Cowboy "lucky-luke" created in root:west-org:west-consumer
Quickstart complete!
`
	first := u.kcp("quickstart --name-prefix west --with-samples --enter")
	if !strings.HasPrefix(first.out, steps) || !strings.HasSuffix(first.out, "Current workspace is 'root:west-org:west-consumer' (type root:universal).\n") || first.err != "" {
		t.Fatalf("error %s, output:\n%s%s", first.err, first.out, first.errOut)
	}
	repeated := u.kcp("quickstart --name-prefix west --with-samples")
	if got := strings.Count(repeated.out, "already exists"); got != 7 || strings.Contains(repeated.out, "created") {
		t.Errorf("output of the repeated quickstart: %s", repeated.out)
	}
	cleanUpQuickstart(t, i, u, "west")
}

func testTreeQuickstart(t *testing.T, i *installation.Installation) {
	u := newUser(t, i, i.Admin(t, "root"))
	got := u.kcp("quickstart --scenario workspaces --name-prefix wood --tree-count 12 --tree-depth 2 --tree-seed 4")
	output := regexp.MustCompile(`\d+\.\d ws/s`).ReplaceAllString(got.out, "N ws/s")
	const want = `Setting up "workspaces" scenario with prefix "wood"...
Step 1/2: Creating the organization...
  Workspace "wood-org" created and ready at root:wood-org
Step 2/2: Creating 12 workspaces (seed 4)...
  Progress: 10/12 workspaces created (N ws/s, depth so far: 2)
  Progress: 12/12 workspaces created (N ws/s, depth so far: 2)
Quickstart complete!
`
	if !strings.HasPrefix(output, want) || got.err != "" {
		t.Fatalf("error %s, output:\n%s", got.err, got.out)
	}
	tree := u.kcp("ws tree -w wood-org")
	if got := strings.Count(tree.out, "wood-ws-"); got != 12 {
		t.Errorf("the tree has %d workspaces:\n%s", got, tree.out)
	}
	cleanUpQuickstart(t, i, u, "wood")
}

// cleanUpQuickstart removes a quickstart and checks that nothing of it remains.
func cleanUpQuickstart(t *testing.T, i *installation.Installation, u *user, prefix string) {
	t.Helper()
	u.expect(u.kcp("quickstart --cleanup --name-prefix "+prefix), commandOutput{out: "" +
		"Cleaning up quickstart resources with prefix \"" + prefix + "\"...\n" +
		"  Workspace \"" + prefix + "-org\" deleted\n" +
		"Cleanup complete.\n"})
	c, err := client.New(i.Admin(t, "root"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("tenancy.kcp.io/v1alpha1")
	list.SetKind("WorkspaceList")
	if err := c.List(context.Background(), list, client.MatchingLabels{"kcp.io/quickstart-prefix": prefix}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) > 0 {
		t.Errorf("%d workspaces remain", len(list.Items))
	}
}
