package endpoints

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func forShards(labels map[string]string) *Shards {
	return &Shards{Selector: &metav1.LabelSelector{MatchLabels: labels}}
}

func TestChoose(t *testing.T) {
	const own = "https://one.example.com"
	labels := map[string]string{"region": "east", "tier": "gold"}
	for name, tc := range map[string]struct {
		endpoints []Endpoint
		want      string
	}{
		"none":                                    {nil, ""},
		"the one with the shard's address":        {[]Endpoint{{URL: "https://two.example.com/services/a"}, {URL: own + "/services/a"}}, own + "/services/a"},
		"not one whose name begins alike":         {[]Endpoint{{URL: own + ".evil.example.com/services/a"}}, ""},
		"not one of two with the shard's address": {[]Endpoint{{URL: own + "/services/a"}, {URL: own + "/services/b"}}, ""},
		"the one that is for all shards":          {[]Endpoint{{URL: "https://any", Shards: &Shards{MatchAll: true}}}, "https://any"},
		"the one that names most of its labels": {[]Endpoint{
			{URL: "https://any", Shards: &Shards{MatchAll: true}}, {URL: "https://gold", Shards: forShards(labels)}, {URL: "https://east", Shards: forShards(map[string]string{"region": "east"})},
		}, "https://gold"},
		"not one of two that name as many": {[]Endpoint{
			{URL: "https://east", Shards: forShards(map[string]string{"region": "east"})}, {URL: "https://gold", Shards: forShards(map[string]string{"tier": "gold"})},
		}, ""},
		"a later one with more terms ends a tie": {[]Endpoint{
			{URL: "https://a", Shards: forShards(map[string]string{"region": "east"})}, {URL: "https://b", Shards: forShards(map[string]string{"tier": "gold"})}, {URL: "https://c", Shards: forShards(labels)},
		}, "https://c"},
		"the address does not count beside selectors": {[]Endpoint{{URL: own + "/services/a"}, {URL: "https://west", Shards: forShards(map[string]string{"region": "west"})}}, ""},
		"neither all nor a selector is nobody":        {[]Endpoint{{URL: "https://any", Shards: &Shards{}}}, ""},
		"a selector that makes no sense": {[]Endpoint{{URL: "https://any", Shards: &Shards{Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}},
		}}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Choose(tc.endpoints, labels, own)
			if got != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
