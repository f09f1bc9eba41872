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
		"nothing is nothing":                        {nil, nil, nil},
		"a missing label is added":                  {map[string]string{"a": "b"}, map[string]string{prefix + "x": "1"}, map[string]string{"a": "b", prefix + "x": "1"}},
		"another value is replaced":                 {map[string]string{prefix + "x": "2"}, map[string]string{prefix + "x": "1"}, map[string]string{prefix + "x": "1"}},
		"what is not wanted goes":                   {map[string]string{prefix + "x": "1", "a": "b"}, nil, map[string]string{"a": "b"}},
		"without any label left there is no map":    {map[string]string{prefix + "x": "1"}, nil, nil},
		"one of several is replaced, the rest stay": {map[string]string{prefix + "x": "1", prefix + "y": "1"}, map[string]string{prefix + "x": "1", prefix + "z": "1"}, map[string]string{prefix + "x": "1", prefix + "z": "1"}},
		"what is right stays":                       {map[string]string{prefix + "x": "1"}, map[string]string{prefix + "x": "1"}, map[string]string{prefix + "x": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ReplaceClaimLabels(tc.own, tc.wanted)
			if !maps.Equal(got, tc.want) || (got == nil) != (tc.want == nil) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if !LabelsMatch(got, tc.wanted) {
				t.Errorf("%v is corrected and still not right", got)
			}
			if LabelsMatch(tc.own, tc.wanted) != maps.Equal(tc.own, tc.want) {
				t.Errorf("whether %v is right: %v", tc.own, LabelsMatch(tc.own, tc.wanted))
			}
		})
	}
}

func TestReflexiveLabel(t *testing.T) {
	own := map[string]string{"internal.apis.kcp.io/export": "e"}
	for name, tc := range map[string]struct {
		wanted, own, want map[string]string
	}{
		"by a label of its own": {nil, own, map[string]string{prefix + "e": apiindex.ReflexiveClaimValue}},
		"by a claim, if there is one": {
			map[string]string{prefix + "e": "claim"}, own, map[string]string{prefix + "e": "claim"},
		},
		"beside the claims of others": {
			map[string]string{prefix + "f": "claim"}, own, map[string]string{prefix + "f": "claim", prefix + "e": apiindex.ReflexiveClaimValue},
		},
		"by nobody while the export is not known": {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := addReflexiveLabel(tc.wanted, tc.own); !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
