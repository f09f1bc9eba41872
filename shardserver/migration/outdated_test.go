package migration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// TestEachClaim: a shard cannot keep another one busy with its answer, nor leave out a part of it unnoticed.
func TestEachClaim(t *testing.T) {
	part := func(from, count int, more bool) claimsResponse {
		response := claimsResponse{More: more}
		for i := range count {
			response.Claims = append(response.Claims, claim{Cluster: fmt.Sprintf("cluster-%06d", from+i)})
		}
		return response
	}
	for name, tc := range map[string]struct {
		answers []claimsResponse
		want    int
		fails   bool
	}{
		"nothing":        {answers: []claimsResponse{{}}},
		"two parts":      {answers: []claimsResponse{part(0, maxClaimsPerResponse, true), part(maxClaimsPerResponse, 1, false)}, want: maxClaimsPerResponse + 1},
		"a small part":   {answers: []claimsResponse{part(0, 1, true), part(1, 1, false)}, want: 1, fails: true},
		"an empty part":  {answers: []claimsResponse{{More: true}}, fails: true},
		"the same again": {answers: []claimsResponse{part(0, maxClaimsPerResponse, true), part(0, 1, false)}, want: maxClaimsPerResponse, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			var answered atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(tc.answers[answered.Add(1)-1])
			}))
			defer server.Close()
			got := 0
			err := eachClaim(t.Context(), &peer{http: server.Client(), address: server.URL}, func(claim) error {
				got++
				return nil
			})
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("%d claims, %v", got, err)
			}
		})
	}
}

// TestClaimsWithoutTheFeature: a shard that does not know the request is one on which the feature is disabled.
func TestClaimsWithoutTheFeature(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	err := eachClaim(t.Context(), &peer{http: server.Client(), address: server.URL}, func(claim) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "404 Not Found") || !strings.Contains(err.Error(), "LogicalClusterMigration") {
		t.Errorf("got %v", err)
	}
}

// TestReleaseEndsQuestions: a shard that does not answer does not keep a released one from serving.
func TestReleaseEndsQuestions(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var held atomic.Bool
	held.Store(true)
	o := &outdatedService{cfg: Config{Held: held.Load}}
	asking, cancel := o.untilReleased(t.Context())
	defer cancel()
	if asking.Err() != nil {
		t.Error("it is held, and asks nobody")
	}
	held.Store(false)
	<-asking.Done()

	held.Store(true)
	_, cancel = o.untilReleased(t.Context())
	cancel() // ends what looks for the release
}
