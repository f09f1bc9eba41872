package nesting

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// nested returns a JSON text of objects and lists with a number of levels.
func nested(levels int) string {
	return strings.Repeat(`[`, levels%2) + strings.Repeat(`{"a":[`, levels/2) + strings.Repeat(`]}`, levels/2) + strings.Repeat(`]`, levels%2)
}

func isTooDeep(err error) bool {
	var tooDeep *TooDeepError
	return errors.As(err, &tooDeep)
}

func TestJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		levels int
	}{
		"a scalar has no level":                           {`"text"`, 0},
		"an object is a level":                            {`{"a":1}`, 1},
		"objects and lists are levels":                    {`{"a":[{"b":[1]}]}`, 4},
		"siblings are on the same level":                  {`{"a":[1],"b":[2],"c":{}}`, 2},
		"brackets in strings are none":                    {`{"a":"[[[[[[","[[[":"{{{"}`, 1},
		"an escaped quote does not end a string":          {`{"a":"\"[[[[","b":"\\","c":"[["}`, 1},
		"a string that does not end":                      {`{"a":"[[[[`, 1},
		"an escape at the end":                            {`{"a":"\`, 1},
		"levels before an error count":                    {`{"a":[[[}`, 4},
		"closing brackets that are not open are no error": {`]]]{}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if err := CheckJSON([]byte(tc.text), tc.levels); err != nil {
				t.Errorf("%d levels are refused: %v", tc.levels, err)
			}
			if err := CheckJSON([]byte(tc.text), tc.levels-1); tc.levels > 0 && !isTooDeep(err) {
				t.Errorf("%d levels are accepted with a limit of %d: %v", tc.levels, tc.levels-1, err)
			}
		})
	}
}

func TestYAML(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		levels int
	}{
		"JSON is YAML":      {`{"a":[{"b":[1]}]}`, 4},
		"blocks":            {"a:\n- b:\n  - 1\n", 4},
		"lists in one line": {"- - - 1\n", 3},
		"flow, in which quotes and comments differ":     {"{a: '\"', b: [[1]]} # \"\n", 3},
		"aliases have the levels of what they refer to": {"a: &a [[1]]\nb: [[*a]]\n", 5},
	} {
		t.Run(name, func(t *testing.T) {
			if err := CheckYAML([]byte(tc.text), tc.levels); err != nil {
				t.Errorf("%d levels are refused: %v", tc.levels, err)
			}
			if err := CheckYAML([]byte(tc.text), tc.levels-1); !isTooDeep(err) {
				t.Errorf("%d levels are accepted with a limit of %d: %v", tc.levels, tc.levels-1, err)
			}
		})
	}
}

func TestJSONPatch(t *testing.T) {
	const limit = 10
	value := func(levels int) string { return nested(levels) }
	path := func(levels int) string { return strings.Repeat("/a", levels) }
	for name, tc := range map[string]struct {
		patch   string
		refused bool
	}{
		"a value at the limit":                      {fmt.Sprintf(`[{"op":"add","path":"/a","value":%s}]`, value(limit-1)), false},
		"a value above the limit at its path":       {fmt.Sprintf(`[{"op":"add","path":"/a","value":%s}]`, value(limit)), true},
		"a value above the limit":                   {fmt.Sprintf(`[{"op":"add","path":"","value":%s}]`, value(limit+1)), true},
		"a path at the limit":                       {fmt.Sprintf(`[{"op":"remove","path":%q}]`, path(limit)), false},
		"a path above the limit":                    {fmt.Sprintf(`[{"op":"remove","path":%q}]`, path(limit+1)), true},
		"a source above the limit":                  {fmt.Sprintf(`[{"op":"copy","from":%q,"path":"/a"}]`, path(limit+1)), true},
		"few copies":                                {"[" + strings.Repeat(`{"op":"copy","from":"/a","path":"/a/b"},`, 19) + `{"op":"test","path":"/a","value":1}]`, false},
		"copies whose paths add up":                 {"[" + strings.Repeat(`{"op":"copy","from":"/a","path":"/a/b"},`, 21) + `{"op":"test","path":"/a","value":1}]`, true},
		"an operation with a field of a wrong type": {fmt.Sprintf(`[{"op":"add","from":5,"path":"/a","value":%s}]`, value(limit)), true},
		"a slash in a name is escaped":              {fmt.Sprintf(`[{"op":"remove","path":"/%s"}]`, strings.Repeat("~1", limit*2)), false},
		"no patch at all":                           {`{"a":1}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := CheckJSONPatch([]byte(tc.patch), limit); (err != nil) != tc.refused {
				t.Errorf("got error %v", err)
			}
		})
	}
}
