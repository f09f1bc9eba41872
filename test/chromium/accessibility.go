package chromium

import (
	_ "embed"
)

//go:embed axe/axe.min.js
var axe string

// CheckAccessibility runs axe on the page: WCAG 2.2 AA and best practices. Axe itself loads nothing.
func (p *Page) CheckAccessibility(where string) {
	p.t.Helper()
	var ready bool
	p.Eval("typeof axe === 'object'", &ready)
	if !ready {
		p.Eval("(() => {"+axe+"\n; return true })()", &ready)
	}
	var result struct {
		Passes     int
		Violations []struct {
			ID, Help string
			Nodes    []struct{ HTML, FailureSummary string }
		}
	}
	p.Eval(`axe.run(document, {preload: false}).then(({passes, violations}) => ({passes: passes.length, violations: violations.map(({id, help, nodes}) =>
		({id, help, nodes: nodes.map(({html, failureSummary}) => ({html, failureSummary}))}))}))`, &result)
	if result.Passes < 15 { // a modal dialog has the fewest
		p.t.Errorf("%s: only %d rules were applied", where, result.Passes)
	}
	for _, violation := range result.Violations {
		for _, node := range violation.Nodes {
			p.t.Errorf("%s: %s (%s): %s\n%s", where, violation.ID, violation.Help, node.HTML, node.FailureSummary)
		}
	}
}

// TabTo presses Tab until an element has the focus, and fails if the element is not visible.
func (p *Page) TabTo(name string) {
	p.t.Helper()
	var passed []string
	for range 80 {
		p.Press("\t")
		focused := p.Focused()
		if focused == name {
			if style := p.String("getComputedStyle(document.activeElement).outlineStyle"); style == "none" {
				p.t.Errorf("the focus on %s cannot be seen", name)
			}
			return
		}
		passed = append(passed, focused)
	}
	p.t.Fatalf("Tab does not reach %q, only %q", name, passed)
}
