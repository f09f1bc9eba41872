package celcost_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/atoll-dev/atoll/internal/celcost"
)

func TestSizeCountsWhatValuesContain(t *testing.T) {
	list := func(elements ...ref.Val) ref.Val { return types.NewRefValList(types.DefaultTypeAdapter, elements) }
	pair := list(types.True, types.True)
	object := dynamic.NewObjectVal(types.NewObjectType("Object"), map[string]ref.Val{"a": pair})
	for name, test := range map[string]struct {
		value ref.Val
		size  uint64
	}{
		"a number":                              {types.Int(7), 1},
		"a string, by a tenth of its length":    {types.String(strings.Repeat("x", 50)), 6},
		"bytes":                                 {types.Bytes(make([]byte, 20)), 3},
		"a list":                                {pair, 3},
		"elements as often as they are reached": {list(pair, pair, pair), 10},
		"a map":                                 {types.DefaultTypeAdapter.NativeToValue(map[string]any{"": []any{true}}), 4},
		"an optional value":                     {types.OptionalOf(pair), 4},
		"no optional value":                     {types.OptionalNone, 1},
		"an object of a mutation":               {object, 5},
		"a patch of a mutation":                 {&mutation.JSONPatchVal{Op: "add", Path: "/a", Val: pair}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			if size := celcost.Size(test.value, 1000); size != test.size {
				t.Errorf("got %d, expected %d", size, test.size)
			}
			if size := celcost.Size(test.value, test.size-1); size != test.size {
				t.Errorf("with a lower limit got %d, expected one more than the limit", size)
			}
		})
	}
}

// The binaries that evaluate expressions of tenants must contain this package, which is not used by name.
func TestBinariesPriceExpressions(t *testing.T) {
	for _, binary := range []string{"kcp", "kcp-front-proxy", "infrastructure-provider", "sync-agent"} {
		output, err := exec.Command("go", "list", "-deps", "../../cmd/"+binary).Output()
		if err != nil {
			t.Fatalf("listing the packages of %s: %v", binary, err)
		}
		packages := strings.Fields(string(output))
		if slices.Contains(packages, "github.com/google/cel-go/cel") && !slices.Contains(packages, "github.com/atoll-dev/atoll/internal/celcost") {
			t.Errorf("%s evaluates expressions without internal/celcost", binary)
		}
	}
}
