package expression

import (
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"k8s.io/utils/lru"
)

const (
	// maxText bounds the output of a template and of each of its functions; no object is larger.
	maxText = 1 << 20
	// maxIterations bounds all loops and nested templates of one template together.
	maxIterations = 10_000
	// maxDuration ends loops whose steps are expensive.
	maxDuration = 5 * time.Second

	countFunction = "countIteration"
)

// NoValue is the output of a template for a field that does not exist.
const NoValue = "<no value>"

// compiledTemplate is a template; loops means that it needs a budget of iterations.
type compiledTemplate struct {
	*template.Template
	loops bool
}

var templates = lru.New(cacheSize)

// Render renders a Go template and trims white space at both ends. Besides Go's functions, templates have the pure text functions of
// sprig, sha3sum, sha3short and shortHash.
func Render(text string, data any) (string, error) {
	compiled, err := compileTemplate(text)
	if err != nil {
		return "", err
	}
	executable := compiled.Template
	if compiled.loops {
		if executable, err = compiled.Clone(); err != nil {
			return "", err
		}
		executable.Funcs(template.FuncMap{countFunction: newBudget()})
	}
	var out limitedBuilder
	if err := executable.Execute(&out, data); err != nil {
		return "", err
	}
	return strings.TrimSpace(out.String()), nil
}

// CompileTemplate returns the errors in a template.
func CompileTemplate(text string) error {
	_, err := compileTemplate(text)
	return err
}

func compileTemplate(text string) (compiledTemplate, error) {
	if compiled, found := templates.Get(text); found {
		return compiled.(compiledTemplate), nil
	}
	parsed, err := template.New("template").Funcs(functions()).Parse(text)
	if err != nil {
		return compiledTemplate{}, err
	}
	compiled := compiledTemplate{Template: parsed}
	for _, t := range parsed.Templates() {
		compiled.loops = limitLoops(t.Root) || compiled.loops
	}
	if compiled.loops {
		// Templates may call each other, and themselves.
		for _, t := range parsed.Templates() {
			t.Root = prependCount(t.Root)
		}
	}
	templates.Add(text, compiled)
	return compiled, nil
}

// newBudget returns the function that counts iterations. text/template has no limit of its own.
func newBudget() func() (string, error) {
	iterations, start := 0, time.Now()
	return func() (string, error) {
		if iterations++; iterations > maxIterations {
			return "", fmt.Errorf("more than %d iterations", maxIterations)
		}
		if time.Since(start) > maxDuration {
			return "", fmt.Errorf("takes longer than %s", maxDuration)
		}
		return "", nil
	}
}

// limitLoops inserts a counter into every iteration, and reports whether the template has loops or nested templates.
func limitLoops(node parse.Node) bool {
	switch n := node.(type) {
	case *parse.ListNode:
		found := false
		if n != nil {
			for _, element := range n.Nodes {
				found = limitLoops(element) || found
			}
		}
		return found
	case *parse.IfNode:
		return limitBranches(&n.BranchNode)
	case *parse.WithNode:
		return limitBranches(&n.BranchNode)
	case *parse.RangeNode:
		limitBranches(&n.BranchNode)
		n.List = prependCount(n.List)
		return true
	case *parse.TemplateNode:
		return true
	}
	return false
}

func limitBranches(n *parse.BranchNode) bool {
	found := limitLoops(n.List)
	return limitLoops(n.ElseList) || found
}

func prependCount(list *parse.ListNode) *parse.ListNode {
	trees, err := parse.Parse("iteration", "{{"+countFunction+"}}", "", "", map[string]any{countFunction: newBudget})
	if err != nil || list == nil {
		return list // the text above is constant
	}
	list.Nodes = append([]parse.Node{trees["iteration"].Root.Nodes[0]}, list.Nodes...)
	return list
}

var errTooLong = errors.New("the output is too long")

// limitedBuilder is a strings.Builder that has a limit.
type limitedBuilder struct {
	strings.Builder
}

func (b *limitedBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxText {
		return 0, errTooLong
	}
	return b.Builder.Write(p)
}
