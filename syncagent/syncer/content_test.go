package syncer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// TestUnfinishedPatchesAreRepeated drops random patches while the source changes, and expects that the copy finally equals the source.
// Fields that only the copy has must remain, unless the syncer had to overwrite all of it.
func TestUnfinishedPatchesAreRepeated(t *testing.T) {
	patched := 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 4))
		last, unfinished := randomFields(random, 3), map[string]any{}
		copied := applyPatch(t, last, map[string]any{"local": "kept"})
		local := map[string]any{"local": "kept"}
		var source map[string]any
		history := []any{last}
		writes := 2 + random.IntN(4)
		for i := range writes {
			source = randomFields(random, 3)
			arrives := i == writes-1 || random.IntN(2) == 0
			history = append(history, source, arrives)
			if unfinished == nil {
				if arrives {
					copied, local = source, map[string]any{}
				}
				continue
			}
			patch := unionFields(mergePatch(last, source), repeatPatch(unfinished, source))
			if arrives {
				copied = applyPatch(t, copied, patch)
			}
			unfinished = unionFields(unfinished, patch)
		}
		if want := applyPatch(t, source, local); !reflect.DeepEqual(copied, want) {
			t.Fatalf("seed %d: got %v, want %v; sources %v", seed, copied, want, history)
		}
		if len(local) > 0 {
			patched++
		}
	}
	if patched < 1000 {
		t.Errorf("all but %d copies were overwritten as a whole", patched)
	}
}

// randomFields returns an object without null and without empty objects: a merge patch cannot distinguish these from missing fields.
func randomFields(random *rand.Rand, depth int) map[string]any {
	result := map[string]any{"always": "there"}
	for i := range random.IntN(4) {
		key := fmt.Sprintf("f%d", i)
		if depth > 0 && random.IntN(2) == 0 {
			result[key] = randomFields(random, depth-1)
		} else {
			result[key] = fmt.Sprint(random.IntN(3))
		}
	}
	return result
}

func applyPatch(t *testing.T, object, patch map[string]any) map[string]any {
	t.Helper()
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	encodedPatch, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := jsonpatch.MergePatch(encoded, encodedPatch)
	if err != nil {
		t.Fatal(err)
	}
	result := map[string]any{}
	if err := json.Unmarshal(patched, &result); err != nil {
		t.Fatal(err)
	}
	return result
}
