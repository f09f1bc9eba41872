package kro

import (
	"strings"
	"testing"

	krocel "github.com/kubernetes-sigs/kro/pkg/cel"
	"github.com/kubernetes-sigs/kro/pkg/graph"
	"github.com/kubernetes-sigs/kro/pkg/graph/variable"
)

// limitedGraph returns a graph of one resource with the expression in every place that allows one.
func limitedGraph(text string) *graph.Graph {
	node := &graph.Node{
		Meta:        graph.NodeMeta{ID: "one"},
		Variables:   []*variable.ResourceField{{FieldDescriptor: variable.FieldDescriptor{Path: "data.a", Expression: krocel.NewUncompiled(text)}}},
		IncludeWhen: krocel.NewUncompiledSlice(text),
		ReadyWhen:   krocel.NewUncompiledSlice(text),
		ForEach:     []graph.ForEachDimension{{Name: "user", Expression: krocel.NewUncompiled(text)}},
	}
	inst := &graph.Node{Variables: []*variable.ResourceField{{FieldDescriptor: variable.FieldDescriptor{Path: "status.a", Expression: krocel.NewUncompiled(text)}}}}
	return &graph.Graph{Instance: inst, Nodes: map[string]*graph.Node{"one": node}, TopologicalOrder: []string{"one"}}
}

func TestExpressionsAreLimited(t *testing.T) {
	variables := map[string]any{"schema": map[string]any{"spec": map[string]any{"count": int64(1) << 40, "text": strings.Repeat("x", 1<<16)}}}
	for name, test := range map[string]struct{ expression, want string }{
		"the functions of the language work": {`random.seededString(8, schema.spec.text).size() == 8 && [1, 2].all(a, a > 0) ? user : each`, "no such attribute"},
		"costs":                              {`lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, c >= 0)))`, "cost limit"},
		"lists of a number of the instance":  {`lists.range(schema.spec.count)`, "range"},
		"results":                            {`lists.range(1000).map(a, schema.spec.text)`, "larger than"},
		"results of results":                 {`[schema.spec.text, schema.spec.text, schema.spec.text, schema.spec.text].map(a, [a, a, a, a]).map(a, [a, a, a, a])`, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			g := limitedGraph(test.expression)
			if err := limitGraph(g); err != nil {
				t.Fatal(err)
			}
			found := append(expressionsOf(g.Nodes["one"]), expressionsOf(g.Instance)...)
			if len(found) != 5 {
				t.Errorf("%d expressions", len(found))
			}
			for _, e := range found {
				if _, err := e.Eval(variables); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %s", err, test.want)
				}
			}
		})
	}
}

func TestLengthOfRandomStrings(t *testing.T) {
	for text, allowed := range map[string]bool{
		`random.seededString(32, 'a')`: true, `random.seededString(1024, 'a')`: true, `random.seededString(1025, 'a')`: false,
		`random.seededString(schema.spec.count, 'a')`: false, `[1].map(a, random.seededString(a, 'a'))`: false, `random.seededInt(1, schema.spec.count, 'a')`: true,
	} {
		if err := limitGraph(limitedGraph(text)); (err == nil) != allowed {
			t.Errorf("%s: %v", text, err)
		}
	}
}
