package workspaces

import (
	"context"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Add keeps URLs that another process writes at the same time.
func TestRememberedAtTheSameTime(t *testing.T) {
	inner := fake.NewClientBuilder().Build()
	key := client.ObjectKey{Namespace: "ns", Name: "one"}
	others := []string{"https://b", "https://c"} // before the first writes
	meddle := func(ctx context.Context) error {
		if len(others) == 0 {
			return nil
		}
		_, err := (&Remembered{inner, key}).Add(ctx, others[:1])
		others = others[1:]
		return err
	}
	c := interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := meddle(ctx); err != nil {
				return err
			}
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if err := meddle(ctx); err != nil {
				return err
			}
			return c.Update(ctx, object, options...)
		},
	})
	got, err := (&Remembered{c, key}).Add(t.Context(), []string{"https://a"})
	if want := []string{"https://a", "https://b", "https://c"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

// All later processes of a client read the endpoints, and no other client does.
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
