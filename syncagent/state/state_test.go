package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

var (
	cluster, _ = logicalcluster.ParseName("2cluster")
	primary    = Primary{cluster, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}, types.NamespacedName{Namespace: "team", Name: "db"}}
	labels     = map[string]string{publication.LabelRemoteCluster: "2cluster"}
	ctx        = context.Background()
)

// newStore returns a store, and the number of its writes.
func newStore(t *testing.T) (Store, *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	writes := 0
	return Store{Namespace: "agent-system", AgentName: "agent", Client: interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			writes++
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, object, options...)
		},
	})}, &writes
}

func load(t *testing.T, s Store) *State {
	t.Helper()
	state, err := s.Load(ctx, primary, labels)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func save(t *testing.T, s Store, state *State) {
	t.Helper()
	if err := s.Save(ctx, state); err != nil {
		t.Fatal(err)
	}
}

func TestSecretName(t *testing.T) {
	want := "obj-state-2cluster-" + expression.ShortHash(`{"apiVersion":"example.org/v1","kind":"Widget","namespace":"team","name":"db"}`)
	if got := SecretName(primary); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	long := primary
	long.Name = strings.Repeat("n", 253)
	if got := SecretName(long); len(got) != len(want) || got == want {
		t.Errorf("the name for a long name is %s", got)
	}
}

func TestStateIsWrittenOnlyWhenItChanges(t *testing.T) {
	store, writes := newStore(t)
	content := map[string]any{"spec": map[string]any{"size": int64(3)}}
	related := Related{Identifier: "creds", Side: syncagentv1alpha1.RelatedResourceOriginKcp, Origin: Object{Version: "v1", Kind: "Secret", Name: "a"}}
	for range 3 {
		state := load(t, store)
		state.SetCopy(types.NamespacedName{Namespace: "ns", Name: "copy"})
		state.SetRelated([]Related{related})
		if err := state.SetLast("key", content); err != nil {
			t.Fatal(err)
		}
		save(t, store, state)
		save(t, store, state)
	}
	if *writes != 1 {
		t.Errorf("got %d writes, want 1", *writes)
	}
	state := load(t, store)
	if got, known := state.Last("key"); !known || !reflect.DeepEqual(got, content) {
		t.Errorf("got %v", got)
	}
	if key, recorded := state.Copy(); !recorded || key.Name != "copy" {
		t.Errorf("the copy is %s", key)
	}
	if got, known := state.Related(); !known || !reflect.DeepEqual(got, []Related{related}) {
		t.Errorf("got related objects %v", got)
	}
	if state.read.Labels[publication.LabelObjectState] != "true" || state.read.Labels[publication.LabelRemoteCluster] != "2cluster" {
		t.Errorf("got labels %v", state.read.Labels)
	}
	state.Forget("key")
	state.RemoveCopy()
	state.SetRelated(nil)
	save(t, store, state)
	state = load(t, store)
	if _, recorded := state.Copy(); recorded || state.Has("key") {
		t.Error("what was removed is left")
	}
	if got, known := state.Related(); !known || len(got) > 0 {
		t.Errorf("got related objects %v, %v; that there are none should be known", got, known)
	}
	if err := store.Delete(ctx, state); err != nil || state.Exists() {
		t.Fatal(err)
	}
	if load(t, store).Exists() {
		t.Error("the state is left")
	}
}

func TestDamagedStateIsUnknown(t *testing.T) {
	store, _ := newStore(t)
	state := load(t, store)
	state.contents = map[string][]byte{"a": []byte("{"), "b": []byte("null"), "c": []byte("[]"), "d": []byte("sha256:00")}
	state.copy = "{"
	save(t, store, state)
	state = load(t, store)
	for key := range maps.Keys(state.contents) {
		if content, known := state.Last(key); known {
			t.Errorf("the content of %s is %v", key, content)
		}
		if same, err := state.IsLast(key, map[string]any{}); same || err != nil {
			t.Errorf("%s: got %v, %v", key, same, err)
		}
	}
	if _, recorded := state.Copy(); recorded {
		t.Error("a damaged key is accepted")
	}
	state.read.Data[relatedKey] = []byte("{}")
	state.decode(state.read)
	if _, known := state.Related(); known {
		t.Error("a damaged list is accepted")
	}
}

func TestConcurrentChangesConflict(t *testing.T) {
	store, _ := newStore(t)
	first, second := load(t, store), load(t, store)
	for i, state := range []*State{first, second} {
		state.SetCopy(types.NamespacedName{Name: fmt.Sprint("copy-", i)})
	}
	save(t, store, first)
	if err := store.Save(ctx, second); !apierrors.IsConflict(err) {
		t.Errorf("the second creation: got %v, want a conflict", err)
	}
	stale := load(t, store)
	first.SetCopy(types.NamespacedName{Name: "changed"})
	save(t, store, first)
	stale.SetCopy(types.NamespacedName{Name: "stale"})
	if err := store.Save(ctx, stale); !apierrors.IsConflict(err) {
		t.Errorf("the stale update: got %v, want a conflict", err)
	}
}

func TestLargeContentsBecomeDigests(t *testing.T) {
	store, writes := newStore(t)
	contents := map[string]map[string]any{"small": {"data": "x"}}
	for i := range 3 {
		contents[fmt.Sprint("large-", i)] = map[string]any{"data": strings.Repeat("x", 300<<10+i)}
	}
	for range 2 {
		state := load(t, store)
		for key, content := range contents {
			if err := state.SetLast(key, content); err != nil {
				t.Fatal(err)
			}
		}
		save(t, store, state)
	}
	if *writes != 1 {
		t.Errorf("got %d writes, want 1", *writes)
	}
	state := load(t, store)
	digests, size := 0, 0
	for key, content := range contents {
		if same, err := state.IsLast(key, content); err != nil || !same {
			t.Errorf("%s is not the last content: %v", key, err)
		}
		if same, _ := state.IsLast(key, map[string]any{"data": "other"}); same {
			t.Errorf("%s equals another content", key)
		}
		if _, known := state.Last(key); !known {
			digests++
		}
		size += len(state.contents[key])
	}
	if digests != 1 || size > maxContents {
		t.Errorf("got %d digests and %d bytes, want 1 and at most %d", digests, size, maxContents)
	}
	if _, known := state.Last("small"); !known {
		t.Error("the small content is not known")
	}
}

func TestUnfinishedPatches(t *testing.T) {
	store, _ := newStore(t)
	state := load(t, store)
	if _, exists := state.Unfinished("key"); exists {
		t.Error("a patch out of nothing")
	}
	patch := map[string]any{"spec": map[string]any{"gone": nil, "size": int64(3)}}
	if err := state.SetUnfinished("key", patch); err != nil {
		t.Fatal(err)
	}
	save(t, store, state)
	state = load(t, store)
	if got, exists := state.Unfinished("key"); !exists || !reflect.DeepEqual(got, patch) {
		t.Errorf("got %v, %v", got, exists)
	}
	if err := state.SetLast("key", map[string]any{"spec": "new"}); err != nil {
		t.Fatal(err)
	}
	save(t, store, state)
	if _, exists := load(t, store).Unfinished("key"); exists {
		t.Error("the patch is left after its content has been recorded")
	}
	if err := state.SetUnfinished("key", patch); err != nil {
		t.Fatal(err)
	}
	if state.Forget("key"); state.Has("key") {
		t.Error("the content is left")
	}
	if _, exists := state.Unfinished("key"); exists {
		t.Error("the patch is left without its content")
	}
}

func TestCopiesAreKnownByTheirUIDs(t *testing.T) {
	store, _ := newStore(t)
	state := load(t, store)
	related := Related{Identifier: "creds", Origin: Object{Name: "a"}}
	state.SetCopyUID("1")
	state.SetCopy(types.NamespacedName{Name: "copy"})
	state.SetRelated([]Related{related})
	if uid := state.CopyUID(); uid != "" || state.HasCopy(related.Key(), "") {
		t.Errorf("got UID %q of a copy that nobody has recorded", uid)
	}
	state.SetCopyUID("2")
	state.SetRelatedCopy(related.Key(), "3")
	save(t, store, state)
	state = load(t, store)
	if uid := state.CopyUID(); uid != "2" || !state.HasCopy(related.Key(), "3") || state.HasCopy(related.Key(), "2") {
		t.Errorf("got UID %q, related objects %v", uid, state.related)
	}
	if key, recorded := state.Copy(); !recorded || key.Name != "copy" {
		t.Errorf("got copy %s", key)
	}
	state.ForgetRelated(related.Key())
	if left, known := state.Related(); !known || len(left) > 0 {
		t.Errorf("got related objects %v", left)
	}
}

func TestStateOfAnotherAgentIsRefused(t *testing.T) {
	store, writes := newStore(t)
	other := store
	other.AgentName = "other"
	save(t, store, load(t, store))
	var foreign *ForeignError
	if _, err := other.Load(ctx, primary, labels); !errors.As(err, &foreign) || foreign.Agent != "agent" {
		t.Errorf("got error %v, want a ForeignError", err)
	}
	secrets := &corev1.SecretList{}
	for agent, want := range map[string]int{"agent": 1, "other": 0} {
		selector, err := apilabels.Parse(Selector(agent))
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Client.List(ctx, secrets, client.MatchingLabelsSelector{Selector: selector}); err != nil || len(secrets.Items) != want {
			t.Errorf("agent %s has %d states (%v), want %d", agent, len(secrets.Items), err, want)
		}
	}
	// The first agent that writes a state without an agent label owns it.
	state := load(t, store)
	delete(state.read.Labels, publication.LabelStateAgent)
	if err := store.Client.Update(ctx, state.read); err != nil {
		t.Fatal(err)
	}
	*writes = 0
	for range 2 {
		save(t, store, load(t, store))
	}
	if got := load(t, store).read.Labels[publication.LabelStateAgent]; got != "agent" || *writes != 1 {
		t.Errorf("the state is that of %q after %d writes", got, *writes)
	}
}

func TestListOfRelatedObjectsCounts(t *testing.T) {
	list := func(count int) (related []Related) {
		for i := range count {
			related = append(related, Related{Identifier: "many", Origin: Object{Name: fmt.Sprint(i, strings.Repeat("n", 240))}, Copy: Object{Name: fmt.Sprint(i)}})
		}
		return related
	}
	store, _ := newStore(t)
	state := load(t, store)
	if err := state.SetLast("large", map[string]any{"data": strings.Repeat("x", maxContents*3/4)}); err != nil {
		t.Fatal(err)
	}
	state.SetRelated(list(1000))
	save(t, store, state)
	size := 0
	for _, value := range state.read.Data {
		size += len(value)
	}
	if size > maxContents {
		t.Errorf("the state has %d bytes, want at most %d", size, maxContents)
	}
	state.SetRelated(list(4000))
	if err := store.Save(ctx, state); err == nil {
		t.Error("a list that no Secret holds is sent to the server")
	}
}
