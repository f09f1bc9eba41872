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
	claims := func(shard, holder string) answer { return answer{shard: shard, claim: &claim{Holder: holder}} }
	for what, tc := range map[string]struct {
		answers []answer
		want    string
		fails   string
	}{
		"there is no other shard":   {},
		"none has it":               {answers: []answer{{shard: "beta"}, {shard: "gamma"}}},
		"one has it":                {answers: []answer{{shard: "beta"}, claims("gamma", "gamma")}, want: "gamma"},
		"a shard that may have it":  {answers: []answer{{shard: "beta"}, silent("gamma")}, fails: `asking shard "gamma": no answer`},
		"two shards that may":       {answers: []answer{silent("beta"), silent("gamma")}, fails: `asking shard "gamma"`},
		"one has it, one is silent": {answers: []answer{claims("beta", "beta"), silent("gamma")}, want: "beta"},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := decideHolder(tc.answers)
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
		got, err := claimOn(t.Context(), &peer{http: server.Client(), address: server.URL}, logicalcluster.MustParseName(name))
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
	if got, err := claimOn(t.Context(), &peer{http: server.Client(), address: server.URL}, logicalcluster.MustParseName("b")); got != nil || err == nil {
		t.Errorf("got %+v, %v", got, err)
	}
}
