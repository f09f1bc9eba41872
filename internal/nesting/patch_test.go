package nesting

import (
	"strings"
	"testing"
)

func TestPatchesHaveALimitOfOperations(t *testing.T) {
	patch := func(n int) []byte { return []byte("[" + strings.Repeat(`{"op":"remove","path":"/a"},`, n-1) + `{}]`) }
	if err := CheckJSONPatch(patch(maxPatchOperations), 10); err != nil {
		t.Errorf("the maximum is refused: %v", err)
	}
	if err := CheckJSONPatch(patch(maxPatchOperations+1), 10); err == nil || !strings.Contains(err.Error(), "at most 1000 operations") {
		t.Errorf("got %v", err)
	}
}

func TestListsInStrategicMergePatchesHaveALimit(t *testing.T) {
	for name, test := range map[string]struct {
		patch   string
		refused bool
	}{
		"a list at the limit":             {`{"a":[1,2,3]}`, false},
		"a longer list":                   {`{"a":[1,2,3,4]}`, true},
		"a list in a list":                {`{"a":[{"b":[1,2,3,4]}]}`, true},
		"fields are no elements":          {`{"a":{"b":1,"c":2,"d":3,"e":4}}`, false},
		"elements of several lists":       {`{"a":[1,2],"b":[1,2],"c":[{"d":[1,2]}]}`, false},
		"the end is missing":              {`{"a":[1,2,3,4`, true},
		"what is no JSON is not examined": {`a: [1,2,3,4]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkElements([]byte(test.patch), 3); (err != nil) != test.refused {
				t.Errorf("got %v, expected an error: %t", err, test.refused)
			}
		})
	}
}
