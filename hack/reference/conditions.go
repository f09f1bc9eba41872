package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// result is a condition that the operator sets.
type result struct{ condition, reason, state, message string }

// states are the functions of package status that create results.
var states = map[string]string{"OK": "True", "Warn": "False, without effect on Ready", "Wait": "False: passes by itself", "Stall": "False: needs a change"}

const statusPackage = "github.com/atoll-dev/atoll/controllers/status"

// conditionsPage lists the conditions of the operator's kinds: every call in its code that creates one.
func conditionsPage() (string, error) {
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps}, "./controllers/...")
	if err != nil {
		return "", err
	}
	seen := map[result]bool{}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return "", errors.Join(toErrors(p.Errors)...)
		}
		for _, file := range p.Syntax {
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if found, ok := resultOf(p.TypesInfo, call); ok {
						seen[found] = true
					}
				}
				return true
			})
		}
	}
	all := make([]result, 0, len(seen))
	for found := range seen {
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.condition, b.condition), cmp.Compare(a.reason, b.reason), cmp.Compare(a.state, b.state), cmp.Compare(a.message, b.message))
	})
	var page strings.Builder
	page.WriteString("# Conditions of the operator's kinds\n\nGenerated from the code by `make generate`. What is filled in is written …. `Ready` is the sum of all; `Stalled` is True while one\n" +
		"needs a change, `Reconciling` while one passes by itself. Where the type is not a constant in the code, the table says \"several\".\n\n| condition | reason | status | message |\n| --- | --- | --- | --- |\n")
	for _, r := range all {
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", r.condition, r.reason, r.state, cell(r.message))
	}
	return page.String(), nil
}

func toErrors(from []packages.Error) []error {
	out := make([]error, len(from))
	for i, err := range from {
		out[i] = err
	}
	return out
}

var verb = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]`)

// resultOf returns the result that a call creates, if its reason is a constant.
func resultOf(info *types.Info, call *ast.CallExpr) (result, bool) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return result{}, false
	}
	function, ok := info.Uses[selector.Sel].(*types.Func)
	if !ok || function.Pkg() == nil || function.Pkg().Path() != statusPackage || states[function.Name()] == "" || len(call.Args) < 3 {
		return result{}, false
	}
	reason, ok := text(info, call.Args[1])
	if !ok {
		return result{}, false
	}
	condition, ok := text(info, call.Args[0])
	if !ok {
		condition = "several"
	}
	message, _ := text(info, call.Args[2])
	return result{condition, reason, states[function.Name()], verb.ReplaceAllString(message, "…")}, true
}

func text(info *types.Info, expr ast.Expr) (string, bool) {
	value := info.Types[expr].Value
	if value == nil || value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(value), true
}
