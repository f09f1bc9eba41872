package endpoints

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Endpoints are known to all later processes of a client, and to no other client.
func TestRemembered(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	of := func(name string) *Remembered { return &Remembered{c, client.ObjectKey{Namespace: "ns", Name: name}} }
	for _, urls := range [][]string{{"https://b/", "https://a"}, {"https://a"}, {}, {"https://c"}} {
		if _, err := of("one").Add(t.Context(), urls); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := of("one").All(t.Context()); err != nil || !slices.Equal(got, []string{"https://a", "https://b", "https://c"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := of("two").Add(t.Context(), nil); err != nil || len(got) > 0 {
		t.Errorf("another client got %v, %v", got, err)
	}
}
