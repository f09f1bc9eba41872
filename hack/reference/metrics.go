package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/tools/go/packages"
)

// metric is a metric that the code describes.
type metric struct{ name, kind, help string }

// metricsPackages describe metrics: those of Kubernetes wrap those of Prometheus.
var metricsPackages = []string{"github.com/prometheus/client_golang/prometheus", "k8s.io/component-base/metrics"}

// optionsType matches the types of options that a metric is created with.
var optionsType = regexp.MustCompile(`^(Counter|Gauge|Histogram|Summary)Opts$`)

// metricsMode loads the types of dependencies from the compiler's export data, so that only the project's own packages are parsed.
const metricsMode = packages.NeedName | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports

// metricsPage lists the metrics of servers: every description of one in their code.
func metricsPage() (string, error) {
	loaded, err := packages.Load(&packages.Config{Mode: metricsMode}, "./...")
	if err != nil {
		return "", err
	}
	rows := map[string]bool{}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return "", errors.Join(toErrors(p.Errors)...)
		}
		found, err := metricsOf(p)
		if err != nil {
			return "", err
		}
		for _, m := range found {
			rows[fmt.Sprintf("| `%s` | %s | %s |\n", m.name, m.kind, cell(m.help))] = true
		}
	}
	return "# Metrics\n\nGenerated from the code by `make generate`: the metrics of servers, operator, sync agent and infrastructure provider that are not those of the libraries of Kubernetes.\n" +
		"Of a name that several servers have, each meaning has a row.\n\n| metric | type | meaning |\n| --- | --- | --- |\n" + strings.Join(slices.Sorted(maps.Keys(rows)), ""), nil
}

// description is the location in the code that describes a metric.
type description struct {
	at                   token.Pos
	namespace, subsystem ast.Expr // or nil
	name, help           ast.Expr
	kind                 string   // empty for a description alone, which has the type of the values
	function             ast.Node // the innermost function around it, or nil
}

// metricsOf returns the metrics that a package describes.
func metricsOf(p *packages.Package) ([]metric, error) {
	var found []metric
	for _, file := range p.Syntax {
		for _, d := range descriptions(p.TypesInfo, file) {
			if d.kind == "" {
				kinds := valueTypes(p)
				if len(kinds) != 1 {
					return nil, fmt.Errorf("%s: the values of this package have the types %v, so that the type of the metric is unknown", p.Fset.Position(d.at), kinds)
				}
				d.kind = kinds[0]
			}
			metrics := d.evaluate(p)
			for _, m := range metrics {
				if m.name == "" || m.help == "" {
					metrics = nil
				}
			}
			if len(metrics) == 0 {
				return nil, fmt.Errorf("%s: name and help of the metric must be constants, or parameters of the function", p.Fset.Position(d.at))
			}
			found = append(found, metrics...)
		}
	}
	return found, nil
}

// descriptions finds options of metrics, and calls of NewDesc.
func descriptions(info *types.Info, file *ast.File) []description {
	var found []description
	ast.PreorderStack(file, nil, func(n ast.Node, stack []ast.Node) bool {
		d := description{at: n.Pos()}
		switch node := n.(type) {
		case *ast.CompositeLit:
			named, ok := info.Types[node].Type.(*types.Named)
			if !ok || !ofMetrics(named.Obj()) || !optionsType.MatchString(named.Obj().Name()) {
				return true
			}
			d.kind = strings.ToLower(strings.TrimSuffix(named.Obj().Name(), "Opts"))
			for _, element := range node.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					switch pair.Key.(*ast.Ident).Name {
					case "Name":
						d.name = pair.Value
					case "Help":
						d.help = pair.Value
					case "Namespace":
						d.namespace = pair.Value
					case "Subsystem":
						d.subsystem = pair.Value
					}
				}
			}
		case *ast.CallExpr:
			selector, ok := node.Fun.(*ast.SelectorExpr)
			if !ok || selector.Sel.Name != "NewDesc" || !ofMetrics(info.Uses[selector.Sel]) || len(node.Args) < 2 {
				return true
			}
			d.name, d.help = node.Args[0], node.Args[1]
		default:
			return true
		}
		for _, around := range stack {
			switch around.(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				d.function = around
			}
		}
		found = append(found, d)
		return true
	})
	return found
}

func ofMetrics(object types.Object) bool {
	return object != nil && object.Pkg() != nil && slices.Contains(metricsPackages, object.Pkg().Path())
}

// valueTypes are the types of the values that the collectors of a package send.
func valueTypes(p *packages.Package) []string {
	found := map[string]bool{}
	for name, object := range p.TypesInfo.Uses {
		if kind, ok := strings.CutSuffix(name.Name, "Value"); ok && ofMetrics(object) && slices.Contains([]string{"Counter", "Gauge", "Untyped"}, kind) {
			found[strings.ToLower(kind)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// evaluate returns the metrics of a description: one, or one for each call of the enclosing function if that has name or help as
// parameters.
func (d description) evaluate(p *packages.Package) []metric {
	one := func(arguments map[types.Object]ast.Expr) []metric {
		var values []string
		for _, expr := range []ast.Expr{d.namespace, d.subsystem, d.name, d.help} {
			value, ok := evaluate(p.TypesInfo, expr, arguments)
			if !ok {
				return nil
			}
			values = append(values, value)
		}
		return []metric{{prometheus.BuildFQName(values[0], values[1], values[2]), d.kind, values[3]}}
	}
	if constants := one(nil); constants != nil || d.function == nil {
		return constants
	}
	function, parameters := functionOf(p, d.function)
	var found []metric
	for _, file := range p.Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			called, ok := call.Fun.(*ast.Ident)
			if !ok || function == nil || p.TypesInfo.Uses[called] != function {
				return true
			}
			arguments := map[types.Object]ast.Expr{}
			for i, argument := range call.Args {
				if i < len(parameters) {
					arguments[parameters[i]] = argument
				}
			}
			found = append(found, one(arguments)...)
			return true
		})
	}
	return found
}

// functionOf returns the expression that calls name, and the parameters.
func functionOf(p *packages.Package, function ast.Node) (types.Object, []types.Object) {
	var named types.Object
	var fields *ast.FieldList
	switch f := function.(type) {
	case *ast.FuncDecl:
		named, fields = p.TypesInfo.Defs[f.Name], f.Type.Params
	case *ast.FuncLit:
		fields = f.Type.Params
		for _, file := range p.Syntax {
			ast.Inspect(file, func(n ast.Node) bool {
				if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Lhs) == 1 && assign.Rhs[0] == ast.Expr(f) {
					if name, ok := assign.Lhs[0].(*ast.Ident); ok {
						named = p.TypesInfo.Defs[name]
					}
				}
				return true
			})
		}
	}
	var parameters []types.Object
	for _, field := range fields.List {
		for _, name := range field.Names {
			parameters = append(parameters, p.TypesInfo.Defs[name])
		}
	}
	return named, parameters
}

// evaluate returns the value of an expression of constants and arguments; that of no expression is empty.
func evaluate(info *types.Info, expr ast.Expr, arguments map[types.Object]ast.Expr) (string, bool) {
	if expr == nil {
		return "", true
	}
	if value := info.Types[expr].Value; value != nil && value.Kind() == constant.String {
		return constant.StringVal(value), true
	}
	switch e := expr.(type) {
	case *ast.Ident:
		if argument := arguments[info.Uses[e]]; argument != nil {
			return evaluate(info, argument, nil)
		}
	case *ast.BinaryExpr:
		left, leftOK := evaluate(info, e.X, arguments)
		right, rightOK := evaluate(info, e.Y, arguments)
		return left + right, leftOK && rightOK && e.Op == token.ADD
	}
	return "", false
}
