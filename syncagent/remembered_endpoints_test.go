package syncagent

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/atoll-dev/atoll/syncagent/options"
)

// Endpoints are known to all later processes of an agent, and to no other agent.
func TestRememberedEndpoints(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	of := func(agent string) *rememberedEndpoints {
		return newRememberedEndpoints(c, &options.Config{Namespace: "ns", AgentName: agent})
	}
	for _, urls := range [][]string{{"https://b/", "https://a"}, {"https://a"}, {}, {"https://c"}} {
		if _, err := of("one").add(t.Context(), urls); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := of("one").all(t.Context()); err != nil || !slices.Equal(got, []string{"https://a", "https://b", "https://c"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := of("two").add(t.Context(), nil); err != nil || len(got) > 0 {
		t.Errorf("the other agent got %v, %v", got, err)
	}
}
