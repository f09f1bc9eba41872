package plugins

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/plugin/kcp"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

const horseManifests = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.horses.stable.example.org}
spec:
  group: stable.example.org
  names: {kind: Horse, listKind: HorseList, plural: horses, singular: horse}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: horses}
spec:
  resources: [{name: horses, group: stable.example.org, schema: v1.horses.stable.example.org, storage: {crd: {}}}]
  permissionClaims:
  - {group: "", resource: configmaps, verbs: ["*"]}
  - {group: "", resource: secrets, verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bind-horses}
rules: [{apiGroups: [apis.kcp.io], resources: [apiexports], resourceNames: [horses], verbs: [bind]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bind-horses}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bind-horses}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: rider}]
`

// unansweredClaimsWarning is the output for a binding to horses whose claims have no answer.
const unansweredClaimsWarning = "" +
	"Warning: claim for configmaps exported but not specified on APIBinding horses. Accept it: kubectl kcp claims accept horses --resource configmaps.core\n" +
	"Warning: claim for secrets exported but not specified on APIBinding horses. Accept it: kubectl kcp claims accept horses --resource secrets.core\n"

// exportHorses exports horses in a new workspace below root.
func exportHorses(t *testing.T, i *installation.Installation, name string) {
	t.Helper()
	c, err := client.New(i.NewWorkspace(t, name, "breeder"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(horseManifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %s: %v", object.GetKind(), err)
		}
	}
	shardtesting.Eventually(t, "the export has an identity", func(ctx context.Context) error {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("apis.kcp.io/v1alpha2")
		object.SetKind("APIExport")
		if err := c.Get(ctx, client.ObjectKey{Name: "horses"}, object); err != nil {
			return err
		}
		if hash, _, _ := unstructured.NestedString(object.Object, "status", "identityHash"); hash == "" {
			return fmt.Errorf("status is %v", object.Object["status"])
		}
		return nil
	})
}

func testBindings(t *testing.T, i *installation.Installation) {
	exportHorses(t, i, "stable")
	u := newUser(t, i, i.NewWorkspace(t, "ranch", "rider"))

	u.expect(u.kcp("bind apiexport root:stable:horses"), commandOutput{
		out:    "apibinding horses created. Waiting to successfully bind ...\nhorses created and bound.\n",
		errOut: unansweredClaimsWarning,
	})
	u.expect(u.kcp("bind apiexport root:stable:horses"), commandOutput{
		err: `workspace "root:ranch" has an APIBinding "horses" already; choose another name with --name, or delete it first`})
	u.expect(u.kcp("claims get apibinding"), commandOutput{out: "APIBINDING   GROUP-RESOURCE   VERBS   STATUS\n"})
	u.expect(u.kcp("ws :root:ranch"), commandOutput{
		out:    "Current workspace is 'root:ranch' (type root:universal).\n",
		errOut: unansweredClaimsWarning,
	})
	u.expect(u.kcp("claims accept horses --resource configmaps.core"), commandOutput{out: "claim \"configmaps.core\" on APIBinding \"horses\" is accepted\n"})
	u.expect(u.kcp("claims reject horses --resource secrets.core"), commandOutput{out: "claim \"secrets.core\" on APIBinding \"horses\" is rejected\n"})
	u.expect(u.kcp("claims get apibindings horses"), commandOutput{out: "" +
		"APIBINDING   GROUP-RESOURCE   VERBS   STATUS\n" +
		"horses       configmaps       *       Accepted\n" +
		"horses       secrets          get     Rejected\n"})
	u.expect(u.kcp("ws :root:ranch"), commandOutput{out: "Current workspace is 'root:ranch' (type root:universal).\n"})
	u.expect(u.kcp("claims accept horses"), commandOutput{out: "on APIBinding \"horses\" is accepted\n"})
	u.expect(u.kcp("claims accept horses --resource pods"), commandOutput{
		err: `APIBinding "horses" has no such permission claim; it has configmaps.core, secrets.core`})
	u.expect(u.kcp("claims accept"), commandOutput{err: "error APIBinding name is missing"})

	farmUser := newUser(t, i, i.NewWorkspace(t, "farm", "rider"))
	farmUser.expect(farmUser.kcp("bind apiexport root:stable:horses --name ponies --accept-permission-claim configmaps.core --reject-permission-claim secrets.core"),
		commandOutput{out: "apibinding ponies created. Waiting to successfully bind ...\nponies created and bound.\n"})
	farmUser.expect(farmUser.kcp("claims get apibinding"), commandOutput{out: "" +
		"APIBINDING   GROUP-RESOURCE   VERBS   STATUS\n" +
		"ponies       configmaps       *       Accepted\n" +
		"ponies       secrets          *       Rejected\n"})
	admin := newUser(t, i, i.Admin(t, "root"))
	i.NewWorkspace(t, "meadow", "rider")
	admin.expect(admin.kcp("bind apiexport root:stable:horses -w :root:meadow --accept-all-permission-claims"),
		commandOutput{
			out: "apibinding horses created. Waiting to successfully bind ...\nhorses created and bound.\n",
			errOut: "Warning: allowed verbs (*) on claim for secrets on APIBinding horses do not match expected verbs (get). " +
				"Accept them: kubectl kcp claims accept horses --resource secrets.core -w :root:meadow\n",
		})
	admin.expect(admin.kcp("claims accept horses -w meadow"), commandOutput{out: "on APIBinding \"horses\" is accepted\n"})
	admin.expect(admin.kcp("claims get apibinding horses -w meadow"), commandOutput{out: "" +
		"APIBINDING   GROUP-RESOURCE   VERBS   STATUS\n" +
		"horses       configmaps       *       Accepted\n" +
		"horses       secrets          get     Accepted\n"})

	unrelatedUser := newUser(t, i, i.NewWorkspace(t, "hill", "mallory"))
	refused := unrelatedUser.kcp("bind apiexport root:stable:horses")
	if !strings.Contains(refused.err, "root:stable:horses") || refused.out != "" {
		t.Errorf("binding without permission: %+v", refused)
	}
	testFailedBinding(t, i, u)
	u.expect(u.kcp("bind apiexport horses"), commandOutput{
		err: `"horses" is not a reference to an APIExport: expected <path>:<apiexport>, the full path of its workspace and its name, as in root:org:provider:cowboys`})
}

// testFailedBinding binds an export whose schema is missing: the binding fails, and the output shows the reason.
func testFailedBinding(t *testing.T, i *installation.Installation, u *user) {
	t.Helper()
	c, err := client.New(i.Admin(t, "root:ranch"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: ghosts}
spec: {resources: [{name: ghosts, group: stable.example.org, schema: v1.ghosts.stable.example.org, storage: {crd: {}}}]}`), &object.Object); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	got := u.kcp("bind apiexport root:ranch:ghosts --timeout 2s")
	if got.out != "apibinding ghosts created. Waiting to successfully bind ...\n" || !strings.HasPrefix(got.err, "could not bind ghosts: not bound after 2s: phase Binding, ") ||
		!strings.Contains(got.err, "v1.ghosts.stable.example.org") {
		t.Errorf("binding an export without its schema: %+v", got)
	}
}

// directive is the last line of a completion: the directive for the shell.
var directive = regexp.MustCompile(`^:\d+$`)

func testCompletion(t *testing.T, i *installation.Installation) {
	exportHorses(t, i, "paddock")
	u := newUser(t, i, i.Admin(t, "root"))
	for line, want := range map[string]string{ // the word after the last blank is being completed
		"bind apiexport root:pad":          "root:paddock:",
		"bind apiexport root:paddock:":     "root:paddock:horses",
		"bind apiexport ":                  "root:",
		"ws :root:pad":                     ":root:paddock",
		"crd snapshot --output ":           "yaml json",
		"quickstart --scenario ":           "api-provider workspaces",
		"claims accept -w :root:paddock t": `tenancy\.kcp\.io-\w+ topology\.kcp\.io-\w+`,
	} {
		wordStart := strings.LastIndex(line, " ") + 1
		words := append([]string{"__complete"}, strings.Fields(line[:wordStart])...)
		got := u.run(kcp.NewCommand, append(words, line[wordStart:])...)
		var lines []string
		for _, line := range strings.Split(got.out, "\n") {
			if line != "" && !directive.MatchString(line) {
				lines = append(lines, line)
			}
		}
		if completed := strings.Join(lines, " "); !regexp.MustCompile("^" + want + "$").MatchString(completed) {
			t.Errorf("%q completes to %q, want %q", line, lines, want)
		}
	}
}
