package celcost

import (
	"math"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Costs that the libraries do not count.
const (
	// timeZone is the cost of a call that reads the file of a time zone.
	timeZone = 500
	// programSizePerCost relates the instructions of a regular expression to the bytes of its text, by which the
	// libraries count. Ordinary expressions have fewer than this many for each byte.
	programSizePerCost = 8
)

// pricer returns the cost of a call with arguments, at most limit + 1, before the call runs. Its own time is
// proportional to that.
type pricer func(args []ref.Val, limit uint64) uint64

// unpriced are the functions whose time does not depend on the content of their arguments, or whose whole cost the libraries count.
var unpriced = map[string]bool{
	operators.LogicalAnd: true, operators.LogicalOr: true, operators.LogicalNot: true, operators.Conditional: true,
	operators.Index: true, operators.OptIndex: true, operators.OptSelect: true,
	operators.NotStrictlyFalse: true, "__not_strictly_false__": true,
	operators.Less: true, operators.LessEquals: true, operators.Greater: true, operators.GreaterEquals: true,
	operators.Subtract: true, operators.Multiply: true, operators.Divide: true, operators.Modulo: true, operators.Negate: true,
	overloads.Size: true, "dyn": true, "type": true, "first": true, "last": true,
	"optional.of": true, "optional.ofNonZeroValue": true, "optional.none": true, "or": true, "orValue": true, "value": true, "hasValue": true,
}

// pricers are the functions whose cost is not the deep size of their arguments.
var pricers = map[string]pricer{
	operators.Equals:          comparison,
	operators.NotEquals:       comparison,
	operators.In:              membership,
	"_in_":                    membership,
	"in":                      membership,
	operators.Add:             addition,
	"format":                  formatting,
	"sets.contains":           pairs,
	"sets.intersects":         pairs,
	"sets.equivalent":         twice(pairs),
	"distinct":                distinct,
	"lists.range":             size,
	"sort":                    sorting,
	"@sortByAssociatedKeys":   sorting,
	"slice":                   elements,
	"reverse":                 elements,
	"optional.unwrap":         elements,
	"unwrapOpt":               elements,
	"cel.@mapInsert":          insertion,
	"join":                    joining,
	"replace":                 replacement,
	"indexOf":                 search,
	"lastIndexOf":             search,
	overloads.Contains:        search,
	overloads.TimeGetFullYear: inTimeZone, overloads.TimeGetMonth: inTimeZone, overloads.TimeGetDayOfYear: inTimeZone,
	overloads.TimeGetDate: inTimeZone, overloads.TimeGetDayOfMonth: inTimeZone, overloads.TimeGetDayOfWeek: inTimeZone,
	overloads.TimeGetHours: inTimeZone, overloads.TimeGetMinutes: inTimeZone, overloads.TimeGetSeconds: inTimeZone,
	overloads.TimeGetMilliseconds: inTimeZone,
}

// matching are the functions whose second argument is a regular expression.
var matching = map[string]bool{overloads.Matches: true, "find": true, "findAll": true}

// pricerOf returns the pricer of a function; nil if it needs none. Unknown functions, such as those of libraries of a new version, cost
// the deep size of their arguments.
func pricerOf(function string, expressions regularExpressions) pricer {
	if unpriced[function] {
		return nil
	}
	if matching[function] {
		return expressions.price
	}
	if priced, found := pricers[function]; found {
		return priced
	}
	return deep
}

// deep is the price of a function that reads the whole content of its arguments.
func deep(args []ref.Val, limit uint64) uint64 {
	var total uint64
	for _, arg := range args {
		total = sum(total, Size(arg, limit))
		if total > limit {
			return limit + 1
		}
	}
	return total
}

// comparison is the price of comparing two values, which ends at the end of the smaller one.
func comparison(args []ref.Val, limit uint64) uint64 {
	if len(args) != 2 {
		return deep(args, limit)
	}
	a, b := args[0], args[1]
	if !isContainer(a) || !isContainer(b) {
		return 1 + traversal(min(shallow(a), shallow(b)))
	}
	left := Size(a, limit)
	return min(left, Size(b, left))
}

// membership is the price of comparing a value with all elements of a list. Keys of maps are found by a hash.
func membership(args []ref.Val, limit uint64) uint64 {
	if len(args) != 2 {
		return deep(args, limit)
	}
	if _, isMap := args[1].(traits.Mapper); isMap {
		return 1
	}
	return Size(args[1], limit)
}

// addition is the price of a list with the elements of two. The accumulator of a comprehension grows in place.
func addition(args []ref.Val, _ uint64) uint64 {
	if len(args) != 2 {
		return 1
	}
	if _, grows := args[0].(traits.MutableLister); grows {
		return 1
	}
	return 1 + traversal(sum(shallow(args[0]), shallow(args[1])))
}

// insertion is the price of a map with one more entry. The accumulator of a comprehension grows in place.
func insertion(args []ref.Val, _ uint64) uint64 {
	if len(args) < 2 {
		return 1
	}
	var cost uint64 = 1
	if _, grows := args[0].(traits.MutableMapper); !grows {
		cost = sum(cost, shallow(args[0]))
	}
	if len(args) == 2 { // two maps
		cost = sum(cost, shallow(args[1]))
	}
	return cost
}

// precision matches the precision of numbers in the format string of a call. The results have that length.
var precision = regexp.MustCompile(`%\.([0-9]+)`)

// formatting is the price of writing the whole content of a list to a string.
func formatting(args []ref.Val, limit uint64) uint64 {
	cost := deep(args, limit)
	if format, ok := args[0].(types.String); ok {
		for _, match := range precision.FindAllStringSubmatch(string(format), -1) {
			digits, err := strconv.ParseUint(match[1], 10, 64)
			if err != nil {
				digits = math.MaxUint64
			}
			cost = sum(cost, traversal(digits))
		}
	}
	return min(cost, limit+1)
}

// pairs is the price of comparing each element of a list with each element of another.
func pairs(args []ref.Val, limit uint64) uint64 {
	if len(args) != 2 {
		return deep(args, limit)
	}
	ab := product(Size(args[0], limit), shallow(args[1]))
	ba := product(Size(args[1], limit), shallow(args[0]))
	return sum(1, min(ab, ba))
}

func twice(of pricer) pricer {
	return func(args []ref.Val, limit uint64) uint64 { return product(2, of(args, limit)) }
}

// distinct is the price of comparing each element of a list with those before it.
func distinct(args []ref.Val, limit uint64) uint64 {
	return sum(1, product(Size(args[0], limit), shallow(args[0])))
}

// size is the price of a list whose size is the argument.
func size(args []ref.Val, limit uint64) uint64 {
	if n, ok := args[0].(types.Int); ok && n > 0 {
		return min(sum(1, uint64(n)), limit+1)
	}
	return 1
}

// sorting is the price of sorting lists of values that have an order, none of which contains others.
func sorting(args []ref.Val, limit uint64) uint64 {
	n := shallow(args[0])
	return product(deep(args[len(args)-1:], limit), uint64(1+math.Log2(float64(n+1))))
}

// elements is the price of a new list with some elements of another.
func elements(args []ref.Val, _ uint64) uint64 { return sum(1, shallow(args[0])) }

// joining is the price of a string of all strings of a list, with a separator.
func joining(args []ref.Val, limit uint64) uint64 {
	cost := product(2, Size(args[0], limit))
	if len(args) == 2 {
		cost = sum(cost, traversal(product(shallow(args[0]), shallow(args[1]))))
	}
	return cost
}

// replacement is the price of a string with parts replaced, which may be much longer than the original.
func replacement(args []ref.Val, limit uint64) uint64 {
	if len(args) < 3 {
		return deep(args, limit)
	}
	text, ok := args[0].(types.String)
	old, isString := args[1].(types.String)
	if !ok || !isString {
		return 1
	}
	count := uint64(strings.Count(string(text), string(old)))
	if len(args) == 4 {
		if most, ok := args[3].(types.Int); ok && most >= 0 {
			count = min(count, uint64(most))
		}
	}
	return sum(1, traversal(sum(product(2, uint64(len(text))), product(count, lengthOf(args[2])))))
}

// search is the price of finding a part of a string, or an element of a list.
func search(args []ref.Val, limit uint64) uint64 {
	text, ok := args[0].(types.String)
	if !ok {
		return deep(args, limit)
	}
	return sum(1, product(traversal(uint64(len(text))), traversal(lengthOf(args[1]))))
}

// regularExpressions prices the matching of texts. The compiled expression may be far larger than its text. sizes contains the sizes of
// the constant expressions of a program.
type regularExpressions struct{ sizes map[string]int }

func (r regularExpressions) price(args []ref.Val, limit uint64) uint64 {
	if len(args) < 2 {
		return 1
	}
	pattern, ok := args[1].(types.String)
	if !ok {
		return 1
	}
	complexity := float64(len(pattern)) * common.RegexStringLengthCostFactor
	if complexity > float64(limit) {
		return limit + 1
	}
	size, found := r.sizes[string(pattern)]
	if !found {
		size = programSize(string(pattern))
	}
	complexity = max(complexity, float64(size)/programSizePerCost*common.RegexStringLengthCostFactor)
	return sum(1, product(traversal(sum(1, lengthOf(args[0]))), uint64(math.Ceil(complexity))))
}

// programSize returns the instructions of a compiled expression; none for an invalid one, because its use is an error. The parser bounds
// them. types.RegexProgramSize does not accept all expressions.
func programSize(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	compiled, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(compiled.Inst)
}

// inTimeZone is the price of a field of a time in a time zone.
func inTimeZone(args []ref.Val, _ uint64) uint64 {
	if len(args) < 2 {
		return 1
	}
	return timeZone
}

func lengthOf(value ref.Val) uint64 {
	switch v := value.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	}
	return 1
}
