package expression

import (
	"slices"
	"testing"
)

func TestSelectedFieldsAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		value any
		want  []string
	}{
		"a field of a field":                {"${other.main.data.size}", []string{"main"}},
		"in texts":                          {"${other.a.x}-${self.spec.b}-${other.c.y}", []string{"a", "c"}},
		"in functions":                      {"${string(base64.decode(other.credentials.data.password))}", []string{"credentials"}},
		"in lists, maps and conditions":     {map[string]any{"list": []any{"${has(other.main.data) ? other.extra.x : 'none'}"}}, []string{"extra", "main"}},
		"not whether it is there":           {"${has(other.optional)}", nil},
		"not of the variable of a loop":     {"${self.spec.list.map(other, other.name)}", nil},
		"nor of a loop within":              {"${self.spec.list.all(other, self.spec.list.exists(x, x == other.name))}", nil},
		"nor of the second variable":        {"${self.spec.list.all(i, other, other.name == '')}", nil},
		"of what a loop is over":            {"${other.main.list.map(other, other.name)}", []string{"main"}},
		"in a loop":                         {"${self.spec.list.map(x, other.main.name + x)}", []string{"main"}},
		"beside a loop":                     {"${self.spec.list.map(other, other.name) + [other.main.name]}", []string{"main"}},
		"a text without expression":         {"other.main", nil},
		"a variable of a loop has the name": {"${[1].map(self, self)}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Selected(tc.value, "other")
			if slices.Sort(got); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	if got, err := Selected("${other.}", "other"); err == nil {
		t.Errorf("an expression that cannot be compiled selects %v", got)
	}
}
