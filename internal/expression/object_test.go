package expression

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

const document = `{
	"metadata": {"name": "n", "annotations": {"example.com/a": "dotted", "@keys": "at", "a|b": "pipe", "#": "hash", "1": "digit"}},
	"spec": {"count": 24, "large": 9007199254740993, "on": true, "none": null, "html": "<&>",
		"object": {"b": "<", "a": 1}, "empty": [],
		"items": [{"name": "a", "ports": [1, 2]}, {"name": "b"}, {"other": "c"}]}
}`

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestPathsAreRead(t *testing.T) {
	object := decode(t, document)
	object["spec"].(map[string]any)["large"] = int64(9007199254740993) // as objects are decoded
	for path, want := range map[string]string{
		`metadata.name`:                          "n",
		`metadata.annotations.example\.com/a`:    "dotted",
		`metadata.annotations.\@keys`:            "at",
		`metadata.annotations.a\|b`:              "pipe",
		`metadata.annotations.\#`:                "hash",
		`metadata.annotations.1`:                 "digit",
		`metadata.annotations.:1`:                "digit",
		`spec.count`:                             "24",
		`spec.large`:                             "9007199254740993",
		`spec.on`:                                "true",
		`spec.none`:                              "",
		`spec.html`:                              "<&>",
		`spec.object`:                            `{"a":1,"b":"<"}`,
		`spec.items.1.name`:                      "b",
		`spec.items.01.name`:                     "b",
		`spec.items.#`:                           "3",
		`spec.items.#.name`:                      `["a","b"]`,
		`spec.items.#.ports.#`:                   `[2]`,
		`spec.items.0.ports`:                     `[1,2]`,
		`spec.items.#(name=="b").name`:           "b",
		`spec.items.#(name!="b")#.name`:          `["a"]`,
		`spec.items.#(ports.#(==2)).name`:        "a",
		`spec.items.#.name|0`:                    "a",
		`spec.obj*.a`:                            "1",
		`spec.object.@keys`:                      `["a","b"]`,
		`spec.items.#.name.@reverse`:             `["a","b"]`,
		`spec.items.#.name|@reverse`:             `["b","a"]`,
		`spec.items.#(other=="c").other|@this`:   "c",
		`spec.items.#(name=="(\"|@)").x.y|@this`: "",
		// Nothing there:
		`spec.items.3`:       "",
		`spec.items.-1`:      "",
		`spec.items.name`:    "",
		`spec.items.:1.name`: "",
		`spec.count.x`:       "",
		`missing.#.name`:     "",
	} {
		got, err := Get(object, path)
		if err != nil || got.String() != want {
			t.Errorf("%s: got %q, %v, want %q", path, got.String(), err, want)
		}
	}
	for path, exists := range map[string]bool{
		"spec.none": true, "spec.missing": false, "spec.empty": true, "spec.empty.#": true, "spec.empty.#.name": true, "spec.items.7": false,
	} {
		if got, err := Get(object, path); err != nil || got.Exists() != exists {
			t.Errorf("%s: exists %v, %v", path, got.Exists(), err)
		}
	}
}

func TestPathsAreRefused(t *testing.T) {
	for path, want := range map[string]string{
		"":                            "the path is empty",
		".spec":                       "a segment is empty",
		"spec.":                       "a segment is empty",
		"spec..x":                     "a segment is empty",
		"..x":                         "a segment is empty",
		`spec\`:                       "nothing follows",
		"@pretty":                     "use one of @flatten",
		`spec.@flatten:{"deep":true}`: "use one of @flatten",
		"spec.@this.@dig:x":           "use one of @flatten",
		"spec|@tostr":                 "use one of @flatten",
		"{metadata,spec}":             `\{`,
		"spec.[a,b]":                  `\[`,
		`!"text"`:                     `\!`,
		"spec.#x":                     "#(field",
		"spec.items.#(name==":         "does not end",
		`spec.items.#(name=="b)`:      "does not end",
		`spec.items.#(x)y`:            "a dot must follow",
		`spec.items.#(@pretty=="b")`:  "not supported in the query",
		`spec.items.#({a,b}=="b")`:    "not supported in the query",
		`spec.items.#[a=="b"]`:        "#(field",
	} {
		if _, err := Get(map[string]any{}, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", path, err, want)
		}
	}
	for _, path := range []string{"spec.items.#.name", "spec.*", "spec.items.#(name==\"x\")", "spec|x", "spec.@this", "a?"} {
		if err := Set(map[string]any{}, path, "x"); err == nil || !strings.Contains(err.Error(), "read only") {
			t.Errorf("set %s: %v", path, err)
		}
		if err := Delete(map[string]any{}, path); err == nil || !strings.Contains(err.Error(), "read only") {
			t.Errorf("delete %s: %v", path, err)
		}
	}
}

func TestPathsAreSet(t *testing.T) {
	for name, tt := range map[string]struct{ object, path, want, err string }{
		"a field":                        {`{"a":1}`, "a", `{"a":"x"}`, ""},
		"a new field":                    {`{}`, "a.b", `{"a":{"b":"x"}}`, ""},
		"null on the way":                {`{"a":null}`, "a.b", `{"a":{"b":"x"}}`, ""},
		"a key with a dot":               {`{}`, `a.b\.c/d`, `{"a":{"b.c/d":"x"}}`, ""},
		"an element":                     {`{"a":[1,{"b":2}]}`, "a.1.b", `{"a":[1,{"b":"x"}]}`, ""},
		"the element behind the end":     {`{"a":[1]}`, "a.1", `{"a":[1,"x"]}`, ""},
		"a new list":                     {`{}`, "a.0.b", `{"a":[{"b":"x"}]}`, ""},
		"an element that is appended":    {`{"a":[1]}`, "a.-1", `{"a":[1,"x"]}`, ""},
		"a new list by appending":        {`{}`, "a.-1.b", `{"a":[{"b":"x"}]}`, ""},
		"a number as a key":              {`{"a":{}}`, "a.0", `{"a":{"0":"x"}}`, ""},
		"a number as the key of nothing": {`{}`, "a.:0", `{"a":{"0":"x"}}`, ""},
		"an index that leaves a gap":     {`{"a":[]}`, "a.1000000000", "", "behind the end"},
		"a key of a list":                {`{"a":[]}`, "a.b", "", "no index of a list"},
		"a field of a text":              {`{"a":"text"}`, "a.b", "", "a field of a string"},
	} {
		t.Run(name, func(t *testing.T) {
			object := decode(t, tt.object)
			err := Set(object, tt.path, "x")
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(decode(t, tt.want), object); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

func TestPathsAreDeleted(t *testing.T) {
	for name, tt := range map[string]struct{ object, path, want string }{
		"a field":                   {`{"a":{"b":1,"c":2}}`, "a.b", `{"a":{"c":2}}`},
		"a missing field":           {`{"a":{}}`, "a.b.c", `{"a":{}}`},
		"a key with quotes":         {`{"a\"":1,"b":2}`, `a"`, `{"b":2}`},
		"an element":                {`{"a":[1,2,3]}`, "a.1", `{"a":[1,3]}`},
		"the last element":          {`{"a":[1,2,3]}`, "a.-1", `{"a":[1,2]}`},
		"the last of no elements":   {`{"a":[]}`, "a.-1", `{"a":[]}`},
		"the only element":          {`{"a":[1]}`, "a.0", `{"a":[]}`},
		"a field of an element":     {`{"a":[{"b":1}]}`, "a.0.b", `{"a":[{}]}`},
		"an element of lists":       {`{"a":[[1,2]]}`, "a.0.0", `{"a":[[2]]}`},
		"an element behind the end": {`{"a":[1]}`, "a.5", `{"a":[1]}`},
		"a key -1":                  {`{"a":{"-1":1}}`, "a.-1", `{"a":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			object := decode(t, tt.object)
			if err := Delete(object, tt.path); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, tt.want), object); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzPaths compares reads with gjson, and reads every written value.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{"a.b", `a\.b`, "a.0", "a.-1", "a.:1", "a.#.b", `a.#(b=="x")#.c`, "*", "a|0", "@keys", `\@a`, "a.01", ":a", "#"} {
		f.Add(path, `{"a":[{"b":"x","c":1},{"b":"y"}],"a.b":{"1":2}}`)
	}
	f.Fuzz(func(t *testing.T, path, text string) {
		if strings.Contains(text, `\u0000`) || !gjson.Valid(text) {
			return
		}
		object := map[string]any{}
		if json.Unmarshal([]byte(text), &object) != nil {
			return
		}
		got, err := Get(object, path)
		if err != nil {
			return
		}
		if encoded, err := encode(object); err == nil && !strings.Contains(path, ":") && !got.IsObject() {
			if want := gjson.GetBytes(encoded, path); want.Exists() && got.Exists() && want.String() != got.String() {
				t.Errorf("%s of %s: got %q, gjson reads %q", path, encoded, got.String(), want.String())
			}
		}
		if Set(object, path, "x") != nil || strings.Contains(path, "-1") {
			return
		}
		if value, found, err := Lookup(object, path); value != "x" || !found || err != nil {
			t.Errorf("%s is %v, %v, %v after it has been set", path, value, found, err)
		}
		if err := Delete(object, path); err != nil {
			t.Error(err)
		}
	})
}
