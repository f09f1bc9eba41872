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
		"none":                              {nil, ""},
		"endpoint with the shard's address": {[]Endpoint{{URL: "https://two.example.com/services/a"}, {URL: own + "/services/a"}}, own + "/services/a"},
		"no endpoint whose host has the shard's as prefix": {[]Endpoint{{URL: own + ".evil.example.com/services/a"}}, ""},
		"two endpoints with the shard's address":           {[]Endpoint{{URL: own + "/services/a"}, {URL: own + "/services/b"}}, ""},
		"endpoint for all shards":                          {[]Endpoint{{URL: "https://any", Shards: &Shards{MatchAll: true}}}, "https://any"},
		"endpoint that matches most labels": {[]Endpoint{
			{URL: "https://any", Shards: &Shards{MatchAll: true}}, {URL: "https://gold", Shards: forShards(labels)}, {URL: "https://east", Shards: forShards(map[string]string{"region": "east"})},
		}, "https://gold"},
		"two endpoints that match as many labels": {[]Endpoint{
			{URL: "https://east", Shards: forShards(map[string]string{"region": "east"})}, {URL: "https://gold", Shards: forShards(map[string]string{"tier": "gold"})},
		}, ""},
		"later endpoint with more terms": {[]Endpoint{
			{URL: "https://a", Shards: forShards(map[string]string{"region": "east"})}, {URL: "https://b", Shards: forShards(map[string]string{"tier": "gold"})}, {URL: "https://c", Shards: forShards(labels)},
		}, "https://c"},
		"address is ignored if there are selectors": {[]Endpoint{{URL: own + "/services/a"}, {URL: "https://west", Shards: forShards(map[string]string{"region": "west"})}}, ""},
		"neither all shards nor a selector":         {[]Endpoint{{URL: "https://any", Shards: &Shards{}}}, ""},
		"invalid selector": {[]Endpoint{{URL: "https://any", Shards: &Shards{Selector: &metav1.LabelSelector{
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
