package celcost_test

import (
	"testing"

	"github.com/atoll-dev/atoll/internal/celcost"
)

func TestExpressionsThatAlwaysExceedTheirLimit(t *testing.T) {
	for name, test := range map[string]struct {
		expression string
		limit      uint64
		refused    bool
	}{
		"input counts as one element":                   {"input == input && input in input", 2, false},
		"a comparison of what the expression builds":    {nested + " == " + nested, 10, true},
		"it is within a higher limit":                   {nested + " == " + nested, 20, false},
		"a comparison with input ends early":            {nested + " == input", 10, false},
		"membership in what the expression builds":      {"dyn(1) in " + nested, 10, true},
		"the value is formatted":                        {"'%s'.format([" + nested + "]) == ''", 10, true},
		"a set of lists":                                {"sets.contains([[1, 2], [1, 2]], [[1, 2], [1, 2]])", 10, true},
		"distinct compares all with all":                {"[[1, 2], [1, 2]].distinct() == []", 10, true},
		"a range is compared":                           {"lists.range(50) == lists.range(50)", 40, true},
		"a filter may keep nothing":                     {"lists.range(50).filter(x, x > 3) == lists.range(50)", 40, false},
		"the smaller branch of a condition counts":      {"(input ? " + nested + " : [1]) == " + nested, 10, false},
		"a part of a conjunction counts":                {"false && " + nested + " == " + nested, 10, true},
		"a body counts whatever its loop is over":       {"input.filter(x, " + nested + " == " + nested + ").size() == 0", 10, true},
		"loops of ordinary policies":                    {"input.spec.containers.all(c, c.image in ['a', 'b'] || c.name.startsWith('x'))", 10, false},
		"what is not an expression has no estimate":     {"((", 1, false},
		"variables have the size of their expressions":  {"variables.large == variables.large", 10, true},
		"a map of what the expression builds":           {"{'a': " + nested + "} == {'a': " + nested + "}", 10, true},
		"presence of a variable is not its value":       {"has(variables.large)", 10, false},
		"a list grows in a sum of lists":                {"([1, 2, 3] + [4, 5, 6]) == ([1, 2, 3] + [4, 5, 6])", 6, true},
		"a comparison of elements of a range is cheap":  {"lists.range(50).all(a, a == 3)", 10, false},
		"elements that the expression builds are large": {"[[[1, 2, 3], [1, 2, 3]]].all(a, a == a)", 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			large, err := celcost.EstimateVariable(nested, 1000, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = celcost.CheckExpression(test.expression, test.limit, map[string]celcost.Estimate{"large": large})
			if (err != nil) != test.refused {
				t.Errorf("got error %v, expected one: %t", err, test.refused)
			}
		})
	}
}

// An expression that the estimate refuses exceeds its limit at run time, if all of it is evaluated.
func FuzzRefusedExpressionsExceedTheirLimit(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"), uint8(3))
	env := environmentWith(f)
	f.Fuzz(func(t *testing.T, choices []byte, items uint8) {
		if items == 0 {
			return
		}
		b := &builder{choices: choices, eager: true}
		expression := "dyn(" + b.list(5) + ") == dyn(" + b.list(5) + ")"
		const limit = 50
		if celcost.CheckExpression(expression, limit, nil) == nil {
			return
		}
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			return
		}
		program, err := env.Program(ast, celcost.ProgramOption(limit))
		if err != nil {
			return
		}
		if result, _, err := program.Eval(map[string]any{"input": input(int(items)), "text": "abc"}); err == nil {
			t.Errorf("got %v of an expression that is refused: %s", result, expression)
		}
	})
}
