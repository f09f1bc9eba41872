package claims

import (
	"maps"
	"testing"

	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

const prefix = "claimed.internal.apis.kcp.io/"

func TestReplaceClaimLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		own, wanted, want map[string]string
	}{
		"no labels":                                   {nil, nil, nil},
		"a missing label is added":                    {map[string]string{"a": "b"}, map[string]string{prefix + "x": "1"}, map[string]string{"a": "b", prefix + "x": "1"}},
		"another value is replaced":                   {map[string]string{prefix + "x": "2"}, map[string]string{prefix + "x": "1"}, map[string]string{prefix + "x": "1"}},
		"an unwanted label is removed":                {map[string]string{prefix + "x": "1", "a": "b"}, nil, map[string]string{"a": "b"}},
		"no labels remain: nil map":                   {map[string]string{prefix + "x": "1"}, nil, nil},
		"one of several is replaced, others are kept": {map[string]string{prefix + "x": "1", prefix + "y": "1"}, map[string]string{prefix + "x": "1", prefix + "z": "1"}, map[string]string{prefix + "x": "1", prefix + "z": "1"}},
		"correct labels are kept":                     {map[string]string{prefix + "x": "1"}, map[string]string{prefix + "x": "1"}, map[string]string{prefix + "x": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ReplaceClaimLabels(tc.own, tc.wanted)
			if !maps.Equal(got, tc.want) || (got == nil) != (tc.want == nil) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if !LabelsMatch(got, tc.wanted) {
				t.Errorf("%v does not match after the update", got)
			}
			if LabelsMatch(tc.own, tc.wanted) != maps.Equal(tc.own, tc.want) {
				t.Errorf("LabelsMatch(%v): %v", tc.own, LabelsMatch(tc.own, tc.wanted))
			}
		})
	}
}

func TestReflexiveLabel(t *testing.T) {
	own := map[string]string{"internal.apis.kcp.io/export": "e"}
	for name, tc := range map[string]struct {
		wanted, own, want map[string]string
	}{
		"the reflexive label": {nil, own, map[string]string{prefix + "e": apiindex.ReflexiveClaimValue}},
		"the label of a claim takes precedence": {
			map[string]string{prefix + "e": "claim"}, own, map[string]string{prefix + "e": "claim"},
		},
		"in addition to claims of other exports": {
			map[string]string{prefix + "f": "claim"}, own, map[string]string{prefix + "f": "claim", prefix + "e": apiindex.ReflexiveClaimValue},
		},
		"no label without an export label": {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := addReflexiveLabel(tc.wanted, tc.own); !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
