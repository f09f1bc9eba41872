package celcost_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/atoll-dev/atoll/internal/celcost"
)

// environmentWith is an environment of the libraries that Kubernetes offers to expressions.
func environmentWith(t testing.TB, options ...cel.EnvOption) *cel.Env {
	t.Helper()
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: environment.DefaultCompatibilityVersion(),
		EnvOptions:        append([]cel.EnvOption{cel.Variable("input", cel.DynType), cel.Variable("text", cel.StringType)}, options...),
	})
	if err != nil {
		t.Fatal(err)
	}
	return set.StoredExpressionsEnv()
}

func evaluate(t testing.TB, ctx context.Context, expression string, input any, options ...cel.ProgramOption) (any, uint64, error) {
	t.Helper()
	env := environmentWith(t)
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(ast, append(options, cel.InterruptCheckFrequency(100))...)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	result, details, err := program.ContextEval(ctx, map[string]any{"input": input})
	if err != nil {
		return nil, 0, err
	}
	return result.Value(), *details.ActualCost(), nil
}

// nested is a list of lists in which each level has the one below twice: small, so that it can be written out, but of
// more elements than the top has.
const nested = `[1].map(a, [a, a]).map(b, [b, b]).map(c, [c, c])`

func TestTheBaseEnvironmentPricesCalls(t *testing.T) {
	_, cost, err := evaluate(t, t.Context(), nested+" == "+nested, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, shallow, err := evaluate(t, t.Context(), nested+".size() == "+nested+".size()", nil)
	if err != nil {
		t.Fatal(err)
	}
	if added := cost - shallow; added < 8 || added > 32 {
		t.Errorf("comparing 16 values costs %d more than comparing two numbers, expected about 16", added)
	}
}

// Each call is refused before it runs: a limit of a few elements is below what it would cost.
func TestCallsAboveTheLimitDoNotRun(t *testing.T) {
	many := make([]any, 50)
	for i := range many {
		many[i] = strings.Repeat("x", 40)
	}
	text := strings.Repeat("ab", 100)
	for expression, input := range map[string]any{
		"input == input":                                    []any{many, many},
		"input != input":                                    []any{many, many},
		"[1] in input":                                      []any{many, many},
		"'%s'.format([input])":                              many,
		"'%.900f'.format([1.0])":                            nil,
		"sets.contains(input, input)":                       many,
		"sets.intersects(input, input)":                     many,
		"sets.equivalent(input, input)":                     many,
		"input.distinct()":                                  many,
		"input.sort()":                                      many,
		"input.sortBy(x, x)":                                many,
		"input.isSorted()":                                  many,
		"input.flatten()":                                   []any{many, many},
		"input.indexOf('y')":                                many,
		"input.lastIndexOf('y')":                            many,
		"input.join('-')":                                   many,
		"input.reverse()":                                   many,
		"input.slice(0, 40)":                                many,
		"lists.range(1000)":                                 nil,
		"input.replace('', 'yyyyyyyyyyyyyy')":               text,
		"input.contains('ababababababababababababababa')":   text,
		"input.indexOf('ababababababababababababababa')":    text,
		"input.matches('([ab]{2}){40}')":                    text,
		"input.find('([ab]{2}){40}')":                       text,
		"input.findAll('([ab]{2}){40}')":                    text,
		"input.matches(input)":                              text,
		"input.upperAscii()":                                strings.Repeat(text, 10),
		"input + input":                                     []any{many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many},
		"timestamp('2026-01-01T00:00:00Z').getHours('UTC')": nil,
	} {
		t.Run(expression, func(t *testing.T) {
			_, _, err := evaluate(t, t.Context(), expression, input, celcost.ProgramOption(5))
			if err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
				t.Errorf("got error %v, expected that the cost limit is exceeded", err)
			}
		})
	}
}
