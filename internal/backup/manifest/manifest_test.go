package manifest

import (
	"strings"
	"testing"
)

func TestDecodeBoundsShards(t *testing.T) {
	many := "[" + strings.TrimSuffix(strings.Repeat("{},", maxShards+1), ",") + "]"
	for name, content := range map[string]string{
		"many":                `{"formatVersion":1,"shards":` + many + `}`,
		"many, and then none": `{"formatVersion":1,"shards":` + many + `,"shards":[]}`,
		"under another case":  `{"formatVersion":1,"SHARDS":` + many + `}`,
	} {
		if _, err := Decode([]byte(content)); err == nil || !strings.Contains(err.Error(), "want at most 10000") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, err := Decode([]byte(`{"formatVersion":1,"shards":null}`)); err != nil || len(out.Shards) > 0 {
		t.Errorf("none: %+v, %v", out, err)
	}
}
