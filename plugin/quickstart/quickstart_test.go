package quickstart

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestTreePlanOrder(t *testing.T) {
	top := logicalcluster.MustParsePath("root:q-org")
	o := treeOptions{depth: 3, count: 40, seed: 7}
	planned, count := map[logicalcluster.Path]bool{top: true}, 0
	for level, paths := range o.plan(top, "q") {
		for _, path := range paths {
			parent, _ := path.Parent()
			if !planned[parent] {
				t.Errorf("%s is ordered before its parent", path)
			}
			if got := len(path.Segments()) - len(top.Segments()) - 1; got != level {
				t.Errorf("%s is planned in level %d", path, level)
			}
			planned[path] = true
			count++
		}
	}
	if count != o.count {
		t.Errorf("%d workspaces are planned", count)
	}
	if diff := cmp.Diff(o.plan(top, "q"), o.plan(top, "q"), cmp.Comparer(func(a, b logicalcluster.Path) bool { return a == b })); diff != "" {
		t.Errorf("the same seed gives another tree:\n%s", diff)
	}
	if flat := (treeOptions{depth: 1, count: 5, seed: 7}).plan(top, "q"); len(flat) != 1 || len(flat[0]) != 5 {
		t.Errorf("a tree of one level is %v", flat)
	}
}

func TestOptionsValidation(t *testing.T) {
	valid := options{scenario: providerScenario, prefix: "q", timeout: 1, tree: treeOptions{depth: 1, count: 1}}
	for name, tc := range map[string]struct {
		change func(*options)
		want   string
	}{
		"fine":             {func(*options) {}, ""},
		"unknown scenario": {func(o *options) { o.scenario = "x" }, `unknown --scenario "x"; there are api-provider and workspaces`},
		"bad prefix":       {func(o *options) { o.prefix = "No" }, `invalid --name-prefix "No": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`},
		"zero timeout":     {func(o *options) { o.timeout = 0 }, "--timeout must be positive, not 0s"},
		"zero tree count":  {func(o *options) { o.tree.count = 0 }, "--tree-depth and --tree-count must be at least 1, not 1 and 0"},
	} {
		t.Run(name, func(t *testing.T) {
			o := valid
			tc.change(&o)
			err := o.validate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
}
