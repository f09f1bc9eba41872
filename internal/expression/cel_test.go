package expression

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCELIsEvaluated(t *testing.T) {
	self := map[string]any{"spec": map[string]any{"names": []any{"a", "b"}, "size": int64(2), "labels": map[string]any{"k": "v"}}}
	other := map[string]any{"metadata": map[string]any{"name": "copy"}}
	for expression, want := range map[string]any{
		`value + 1`:                  int64(4),
		`value / 2`:                  int64(1),
		`double(value)`:              int64(3),
		`1.5`:                        1.5,
		`9007199254740993`:           int64(9007199254740993),
		`uint(7)`:                    int64(7),
		`other.metadata.name + '-x'`: "copy-x",
		`'<&>'`:                      "<&>",
		`b'ab'`:                      "YWI=",
		`null`:                       nil,
		`value == 3`:                 true,
		`self.spec.names`:            []any{"a", "b"},
		`self.spec.names.map(n, {'name': n, 'size': self.spec.size})`: []any{
			map[string]any{"name": "a", "size": int64(2)}, map[string]any{"name": "b", "size": int64(2)}},
		`{'a': 1, 'b': 'text', 'c': [1, 'x', null, 2.5], 'd': {}}`: map[string]any{
			"a": int64(1), "b": "text", "c": []any{int64(1), "x", nil, 2.5}, "d": map[string]any{}},
		`self.spec.labels`:                              map[string]any{"k": "v"},
		`[]`:                                            []any{},
		`self.spec.?missing.orValue('default')`:         "default",
		`self.?missing`:                                 nil,
		`has(self.spec.missing) ? 1 : 2`:                int64(2),
		`duration('90m')`:                               "1h30m0s",
		`timestamp('2020-01-02T03:04:05Z')`:             "2020-01-02T03:04:05Z",
		`'a,b'.split(',').join('-')`:                    "a-b",
		`quantity('1Gi').isGreaterThan(quantity('1M'))`: true,
		`base64.encode(b'x')`:                           "eA==",
	} {
		got, err := EvaluateCEL(expression, int64(3), self, other)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", expression, diff)
		}
	}
}

func TestCELResultsShareNothing(t *testing.T) {
	self := map[string]any{"spec": map[string]any{"list": []any{map[string]any{"a": "b"}}}}
	got, err := EvaluateCEL("self.spec", nil, self, nil)
	if err != nil {
		t.Fatal(err)
	}
	got.(map[string]any)["list"].([]any)[0].(map[string]any)["a"] = "changed"
	if a := self["spec"].(map[string]any)["list"].([]any)[0].(map[string]any)["a"]; a != "b" {
		t.Errorf("the object has %v", a)
	}
}

func TestCELIsRefused(t *testing.T) {
	many := make([]any, 3000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	self := map[string]any{"many": many, "text": strings.Repeat("x", maxText)}
	for name, tt := range map[string]struct{ expression, want string }{
		"syntax":                  {"1 +", "Syntax error"},
		"unknown variable":        {"nothing", "undeclared reference"},
		"missing field":           {"self.missing", "no such key"},
		"missing counterpart":     {"other.metadata", "no such key"},
		"cost":                    {"self.many.all(a, self.many.all(b, self.many.all(c, a != 'x')))", "cost limit exceeded"},
		"long list":               {"lists.range(1000000000)", "cost limit exceeded"},
		"result that is large":    {"self.many.map(m, self.text)", "larger than"},
		"keys that are no string": {"{1: 2}", "keys must be strings"},
		"infinity":                {"1.0 / 0.0", "no number of JSON"},
		"large unsigned number":   {"18446744073709551615u", "too large"},
		"type":                    {"type(1)", "cannot be part of an object"},
		"quantity":                {"quantity('1')", "cannot be part of an object"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := EvaluateCEL(tt.expression, nil, self, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %.80v, error %v, want one with %q", got, err, tt.want)
			}
		})
	}
}
