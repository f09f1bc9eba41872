package apis

import "testing"

func TestEqualJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"another order of fields":                {`{"type":"integer","maximum":2}`, `{ "maximum": 2, "type": "integer" }`, true},
		"a number in another form":               {`{"enum":[1,100]}`, `{"enum":[1.0,1e2]}`, true},
		"another number":                         {`{"default":1}`, `{"default":2}`, false},
		"numbers that are one in floating point": {`{"default":9007199254740993}`, `{"default":9007199254740992}`, false},
		"invalid JSON":                           {`{`, `{}`, false},
	} {
		if got := equalJSON([]byte(tc.a), []byte(tc.b)); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
