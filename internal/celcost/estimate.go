package celcost

import (
	"fmt"
	"math"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/environment"
)

// CheckExpression returns an error if a call of an expression costs more than limit whenever it is evaluated: the values that the
// expression itself builds are too large, while those of its input count as one element. It also counts calls that a condition or an
// empty list may prevent, because such a call has no use. Variables are other expressions by name, "variables.<name>", with the result of
// EstimateVariable. It returns no error for an expression that cannot be parsed, because its compilation returns one.
func CheckExpression(expression string, limit uint64, variables map[string]Estimate) error {
	_, err := EstimateVariable(expression, limit, variables)
	return err
}

// EstimateVariable returns the least size of an expression's result, for expressions that use it.
func EstimateVariable(expression string, limit uint64, variables map[string]Estimate) (Estimate, error) {
	parsed, err := parse(expression)
	if err != nil {
		return unknown, nil
	}
	e := estimation{limit: limit, variables: variables}
	result := e.of(parsed, nil)
	if e.exceeded != "" {
		return result, fmt.Errorf("a call of %s costs more than %d whenever it is evaluated: it compares, searches or formats a value that the expression makes too large", e.exceeded, limit)
	}
	return result, nil
}

// Estimate is a lower bound of the size of a value.
type Estimate struct {
	// deep is the deep size, as defined by Size; length is the number of elements.
	deep, length uint64
	// element is the smallest element.
	element *Estimate
}

// unknown is the estimate of input.
var unknown = Estimate{deep: 1}

func (e Estimate) elements() Estimate {
	if e.element == nil {
		return unknown
	}
	return *e.element
}

// scope has the variables of comprehensions.
type scope struct {
	name   string
	value  Estimate
	parent *scope
}

func (s *scope) find(name string) (Estimate, bool) {
	for ; s != nil; s = s.parent {
		if s.name == name {
			return s.value, true
		}
	}
	return unknown, false
}

// estimation estimates the values of one expression.
type estimation struct {
	limit     uint64
	variables map[string]Estimate
	// exceeded is the function of the first call above the limit.
	exceeded string
}

func (e *estimation) of(expr ast.Expr, in *scope) Estimate {
	switch expr.Kind() {
	case ast.LiteralKind:
		return Estimate{deep: Size(expr.AsLiteral(), e.limit)}
	case ast.IdentKind:
		value, _ := in.find(expr.AsIdent())
		return value
	case ast.SelectKind:
		operand := expr.AsSelect().Operand()
		e.of(operand, in)
		if operand.Kind() == ast.IdentKind && operand.AsIdent() == "variables" {
			if value, found := e.variables[expr.AsSelect().FieldName()]; found && !expr.AsSelect().IsTestOnly() {
				return value
			}
		}
		return unknown
	case ast.ListKind:
		optional := map[int32]bool{}
		for _, i := range expr.AsList().OptionalIndices() {
			optional[i] = true
		}
		list := Estimate{deep: 1}
		for i, element := range expr.AsList().Elements() {
			if value := e.of(element, in); !optional[int32(i)] {
				list = list.with(value)
			}
		}
		return list
	case ast.MapKind:
		result := Estimate{deep: 1}
		for _, entry := range expr.AsMap().Entries() {
			key, value := e.of(entry.AsMapEntry().Key(), in), e.of(entry.AsMapEntry().Value(), in)
			if !entry.AsMapEntry().IsOptional() {
				result.deep = sum(result.deep, sum(key.deep, value.deep))
			}
		}
		return result
	case ast.StructKind:
		result := Estimate{deep: 1}
		for _, field := range expr.AsStruct().Fields() {
			if value := e.of(field.AsStructField().Value(), in); !field.AsStructField().IsOptional() {
				result.deep = sum(result.deep, value.deep)
			}
		}
		return result
	case ast.ComprehensionKind:
		return e.comprehension(expr.AsComprehension(), in)
	case ast.CallKind:
		return e.call(expr.AsCall(), in)
	}
	return unknown
}

// with returns a list with one more element.
func (e Estimate) with(element Estimate) Estimate {
	smallest := &element
	if e.element != nil && e.element.deep < element.deep {
		smallest = e.element
	}
	return Estimate{deep: sum(e.deep, element.deep), length: e.length + 1, element: smallest}
}

// repeated returns a list that has the elements of e n times.
func (e Estimate) repeated(n uint64) Estimate {
	if n == 0 {
		return unknown
	}
	return Estimate{deep: sum(1, product(n, e.deep-1)), length: product(n, e.length), element: e.element}
}

func (e *estimation) call(call ast.CallExpr, in *scope) Estimate {
	var args []Estimate
	name := call.FunctionName()
	if call.IsMemberFunction() {
		if library := call.Target(); library.Kind() == ast.IdentKind && libraries[library.AsIdent()] {
			name = library.AsIdent() + "." + name
		} else {
			args = append(args, e.of(library, in))
		}
	}
	for _, arg := range call.Args() {
		args = append(args, e.of(arg, in))
	}
	if e.exceeded == "" && leastCost(name, args) > e.limit {
		e.exceeded = name
	}
	switch {
	case name == operators.Add && len(args) == 2:
		both := Estimate{deep: sum(args[0].deep, args[1].deep-1), length: sum(args[0].length, args[1].length), element: args[0].element}
		if both.element == nil || (args[1].element != nil && args[1].element.deep < both.element.deep) {
			both.element = args[1].element
		}
		return both
	case name == operators.Conditional && len(args) == 3:
		if args[1].deep < args[2].deep {
			return args[1]
		}
		return args[2]
	case name == "dyn" && len(args) == 1:
		return args[0]
	case name == "lists.range" && len(call.Args()) == 1 && call.Args()[0].Kind() == ast.LiteralKind:
		if n, ok := call.Args()[0].AsLiteral().(types.Int); ok && n > 0 {
			return Estimate{deep: 2, length: 1, element: &unknown}.repeated(uint64(n))
		}
	}
	return unknown
}

// libraries are the names before those of functions of a library, which the parser does not distinguish from methods.
var libraries = map[string]bool{"sets": true, "lists": true}

// leastCost is a lower bound of the price of a call.
func leastCost(function string, args []Estimate) uint64 {
	switch function {
	case operators.Equals, operators.NotEquals:
		if len(args) == 2 {
			return min(args[0].deep, args[1].deep)
		}
	case operators.In, "format", "indexOf", "lastIndexOf", "flatten", "join":
		if len(args) > 0 {
			return args[len(args)-1].deep
		}
	case "sets.contains", "sets.intersects", "sets.equivalent":
		if len(args) == 2 {
			return min(product(args[0].deep, args[1].length), product(args[1].deep, args[0].length))
		}
	case "distinct":
		if len(args) == 1 {
			return product(args[0].deep, args[0].length)
		}
	case operators.Add:
		if len(args) == 2 {
			return traversal(sum(args[0].length, args[1].length))
		}
	}
	return 0
}

// comprehension estimates the result of macros: map and transformList add a list to their result, once for each element.
func (e *estimation) comprehension(c ast.ComprehensionExpr, in *scope) Estimate {
	over := e.of(c.IterRange(), in)
	initial := e.of(c.AccuInit(), in)
	inner := &scope{name: c.IterVar(), value: over.elements(), parent: in}
	if c.HasIterVar2() {
		inner = &scope{name: c.IterVar2(), value: over.elements(), parent: &scope{name: c.IterVar(), value: unknown, parent: in}}
	}
	inner = &scope{name: c.AccuVar(), value: unknown, parent: inner}
	e.of(c.LoopCondition(), inner)
	built := unknown
	step := c.LoopStep()
	if step.Kind() == ast.CallKind && step.AsCall().FunctionName() == operators.Add && isIdent(step.AsCall().Args()[0], c.AccuVar()) {
		built = e.of(step.AsCall().Args()[1], inner).repeated(over.length)
	} else {
		e.of(step, inner)
		if c.IterRange().Kind() == ast.ListKind && c.IterRange().AsList().Size() == 0 {
			built = initial // a binding of a name
		}
	}
	if built.deep > math.MaxUint64/2 {
		built.deep = math.MaxUint64 / 2
	}
	return e.of(c.Result(), &scope{name: c.AccuVar(), value: built, parent: in})
}

func isIdent(expr ast.Expr, name string) bool {
	return expr.Kind() == ast.IdentKind && expr.AsIdent() == name
}

// parse returns the expression with its macros expanded.
func parse(expression string) (ast.Expr, error) {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv()
	parsed, issues := env.Parse(expression)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	return parsed.NativeRep().Expr(), nil
}
