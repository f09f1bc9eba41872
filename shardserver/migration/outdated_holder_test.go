package migration

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestDecideHolder: content is deleted only when it is certain which shard has the logical cluster, or that none has it.
func TestDecideHolder(t *testing.T) {
	silent := func(shard string) answer { return answer{shard: shard, err: errors.New("no answer")} }
	claims := func(shard, holder string) answer {
		return answer{shard: shard, confirmed: true, claim: &claim{Holder: holder}}
	}
	restored := func(shard, holder string) answer { return answer{shard: shard, claim: &claim{Holder: holder}} }
	none := func(shard string) answer { return answer{shard: shard, confirmed: true} }
	const recorded = "beta"
	for what, tc := range map[string]struct {
		answers []answer
		want    string
		fails   string
	}{
		"there is no other shard":                          {},
		"none has it":                                      {answers: []answer{none("beta"), none("gamma")}},
		"none has it, and one is restored":                 {answers: []answer{none("beta"), {shard: "gamma"}}},
		"the recorded shard has it":                        {answers: []answer{claims("beta", "beta")}, want: "beta"},
		"the recorded shard has it, another one is silent": {answers: []answer{silent("gamma"), claims("beta", "beta")}, want: "beta"},
		"the recorded shard and a stale one have it":       {answers: []answer{claims("gamma", "gamma"), claims("beta", "beta")}, want: "beta"},
		"it has moved on":                                  {answers: []answer{none("beta"), claims("gamma", "gamma")}, want: "gamma"},
		"it has moved on, and something is left":           {answers: []answer{claims("beta", "gamma"), claims("gamma", "gamma")}, want: "gamma"},
		"the recorded shard is silent":                     {answers: []answer{silent("beta")}, fails: `asking shard "beta": no answer`},
		"a stale shard, the recorded one is silent":        {answers: []answer{silent("beta"), claims("gamma", "gamma")}, fails: `asking shard "beta": no answer`},
		"it has moved on, to which of two":                 {answers: []answer{none("beta"), claims("gamma", "gamma"), silent("delta")}, fails: `asking shard "delta": no answer`},
		"two have it":                                      {answers: []answer{none("beta"), claims("gamma", "gamma"), claims("delta", "delta")}, fails: `the shards "gamma" and "delta" both have it`},
		"a shard that may have it":                         {answers: []answer{none("beta"), silent("gamma")}, fails: `asking shard "gamma": no answer`},
		"two shards that may":                              {answers: []answer{silent("beta"), silent("gamma")}, fails: `asking shard "gamma"`},
		"the recorded shard is restored":                   {answers: []answer{restored("beta", "beta"), none("gamma")}, fails: `shard "beta" claims it, and was restored`},
		"another shard is restored":                        {answers: []answer{none("beta"), restored("gamma", "gamma")}, fails: `shard "gamma" claims it, and was restored`},
		"a restored shard has handed it over":              {answers: []answer{none("beta"), restored("gamma", "delta"), none("delta")}, fails: `shard "gamma" claims it, and was restored`},
		"it is moving":                                     {answers: []answer{claims("beta", "gamma"), none("gamma")}, fails: `shard "beta" has handed it over to shard "gamma", which does not have it yet`},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := decideHolder(recorded, tc.answers)
			if holder := holderOf(got); holder != tc.want {
				t.Errorf("holder %q", holder)
			}
			if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func holderOf(c *claim) string {
	if c == nil {
		return ""
	}
	return c.Holder
}

// TestSettles: only the shard that has it, or may have it, makes the answers of others needless.
func TestSettles(t *testing.T) {
	for what, tc := range map[string]struct {
		answer answer
		want   bool
	}{
		"has it":             {answer{shard: "beta", confirmed: true, claim: &claim{Holder: "beta"}}, true},
		"is silent":          {answer{shard: "beta", err: errors.New("no answer")}, true},
		"does not have it":   {answer{shard: "beta", confirmed: true}, false},
		"has handed it over": {answer{shard: "beta", confirmed: true, claim: &claim{Holder: "gamma"}}, false},
		"is restored":        {answer{shard: "beta", claim: &claim{Holder: "beta"}}, false},
	} {
		if got := tc.answer.settles(); got != tc.want {
			t.Errorf("%s: got %t", what, got)
		}
	}
}

// TestClaimOn: one request finds the claim on a logical cluster, however many others the shard claims.
func TestClaimOn(t *testing.T) {
	var all []*corev1alpha1.LogicalCluster
	receipts := encodeReceipts([]receipt{{Shard: "alpha", Epoch: 1, MAC: "m"}})
	for _, name := range []string{"a", "ab", "ab-c", "ab-d", "ab0", "ab1", "b", "system:b"} {
		cluster := &corev1alpha1.LogicalCluster{}
		cluster.Annotations = map[string]string{logicalcluster.AnnotationKey: name, corev1alpha1.ReceiptsAnnotationKey: receipts}
		all = append(all, cluster)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		wanted := claimsRequest{}
		_ = json.NewDecoder(req.Body).Decode(&wanted)
		response := claimsFor(all, "alpha", "beta", wanted.After)
		if len(response.Claims) > 1 { // as if there were many
			response.Claims, response.More = response.Claims[:1], true
		}
		_ = json.NewEncoder(w).Encode(response)
	}))
	defer server.Close()
	for name, want := range map[string]bool{
		"a": true, "ab": true, "ab-c": true, "ab-d": true, "ab0": true, "ab1": true, "b": true, "system:b": true,
		"0": false, "aa": false, "ab-b": false, "ab-c0": false, "ab-e": false, "ab2": false, "abc": false, "c": false, "z": false,
	} {
		got, _, err := claimOn(t.Context(), &peer{http: server.Client(), address: server.URL}, logicalcluster.MustParseName(name))
		if err != nil || (got != nil) != want || got != nil && got.Cluster != name {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// TestClaimOnEarlier: a shard that answers with something else has not said whether it has the logical cluster.
func TestClaimOnEarlier(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(claimsResponse{Claims: []claim{{Cluster: "a"}}, More: true})
	}))
	defer server.Close()
	if got, _, err := claimOn(t.Context(), &peer{http: server.Client(), address: server.URL}, logicalcluster.MustParseName("b")); got != nil || err == nil {
		t.Errorf("got %+v, %v", got, err)
	}
}
