package bindings

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

func widgets(schemaName string) Resource {
	return Resource{
		GroupResource: schema.GroupResource{Group: "example.com", Resource: "widgets"},
		Export:        ExportKey{Cluster: logicalcluster.MustParseName("provider"), Name: "widgets"},
		Identity:      "id1", Schema: schemaName, SchemaUID: types.UID("uid-" + schemaName),
	}
}

func gadgets(identity string) Resource {
	r := widgets("v1.gadgets.example.com")
	r.GroupResource.Resource, r.Identity = "gadgets", identity
	return r
}

// newParsedBinding returns the indexed fields of a binding at a version.
func newParsedBinding(cluster, name string, version uint64, resources ...Resource) parsedBinding {
	return parsedBinding{bindingKey: bindingKey{logicalcluster.MustParseName(cluster), name}, version: version, resources: resources}
}

func describeBound(t *testing.T, i *Index, cluster string, gr schema.GroupResource) string {
	t.Helper()
	b, ok := i.Get(logicalcluster.With(t.Context(), logicalcluster.MustParseName(cluster)), gr)
	if !ok {
		return ""
	}
	text := b.Binding + " " + b.Schema
	if b.Terminating {
		text += " terminating"
	}
	return text
}

func sizes(i *Index) string {
	clusters, bindings, sets, resources := i.Sizes()
	return fmt.Sprintf("%d clusters, %d bindings, %d sets, %d resources, %d identities, %d schemas",
		clusters, bindings, sets, resources, len(i.pool.identities), len(i.pool.schemas))
}

func TestUpdateAndRemove(t *testing.T) {
	gr := widgets("").GroupResource
	terminating := newParsedBinding("a", "one", 7, widgets("v2"))
	terminating.terminating = true
	for name, test := range map[string]struct {
		do    func(*Index)
		want  string
		sizes string
	}{
		"an empty index": {
			do: func(*Index) {}, sizes: "0 clusters, 0 bindings, 0 sets, 0 resources, 0 identities, 0 schemas",
		},
		"a binding without bound resources": {
			do:    func(i *Index) { i.update(newParsedBinding("a", "one", 5), false) },
			sizes: "1 clusters, 1 bindings, 1 sets, 0 resources, 0 identities, 0 schemas",
		},
		"resources in the status are bound": {
			do:   func(i *Index) { i.update(newParsedBinding("a", "one", 5, gadgets("id1"), widgets("v1")), false) },
			want: "one v1", sizes: "1 clusters, 1 bindings, 1 sets, 2 resources, 2 identities, 2 schemas",
		},
		"a newer schema replaces the old one": {
			do: func(i *Index) {
				i.update(newParsedBinding("a", "one", 5, widgets("v1")), false)
				i.update(newParsedBinding("a", "one", 6, widgets("v2")), false)
			},
			want: "one v2", sizes: "1 clusters, 1 bindings, 1 sets, 1 resources, 1 identities, 1 schemas",
		},
		"an outdated update is ignored": {
			do: func(i *Index) {
				i.update(newParsedBinding("a", "one", 6, widgets("v2")), true)
				i.update(newParsedBinding("a", "one", 5, widgets("v1")), false)
			},
			want: "one v2", sizes: "1 clusters, 1 bindings, 1 sets, 1 resources, 1 identities, 1 schemas",
		},
		"a binding that is being deleted is terminating": {
			do: func(i *Index) {
				i.update(newParsedBinding("a", "one", 6, widgets("v2")), false)
				i.update(terminating, false)
			},
			want: "one v2 terminating", sizes: "1 clusters, 1 bindings, 1 sets, 1 resources, 1 identities, 1 schemas",
		},
		"a deleted binding is removed": {
			do: func(i *Index) {
				i.update(newParsedBinding("a", "one", 6, widgets("v2")), false)
				i.remove(bindingKey{logicalcluster.MustParseName("a"), "one"}, 8)
			},
			sizes: "0 clusters, 0 bindings, 0 sets, 0 resources, 0 identities, 0 schemas",
		},
		"an outdated deletion does not remove a newer binding of that name": {
			do: func(i *Index) {
				i.update(newParsedBinding("a", "one", 9, widgets("v2")), true)
				i.remove(bindingKey{logicalcluster.MustParseName("a"), "one"}, 8)
			},
			want: "one v2", sizes: "1 clusters, 1 bindings, 1 sets, 1 resources, 1 identities, 1 schemas",
		},
		"a request does not add a binding whose deletion was observed": {
			do: func(i *Index) {
				i.setSyncedVersion("8")
				i.update(newParsedBinding("a", "one", 6, widgets("v2")), true)
			},
			sizes: "0 clusters, 0 bindings, 0 sets, 0 resources, 0 identities, 0 schemas",
		},
		"a binding that a new list does not contain is removed": {
			do: func(i *Index) {
				i.update(newParsedBinding("a", "one", 5, widgets("v1")), false)
				i.update(newParsedBinding("a", "two", 5, gadgets("id1")), false)
				i.update(newParsedBinding("b", "one", 6, widgets("v1")), false)
				i.prune(sets.New(bindingKey{logicalcluster.MustParseName("a"), "one"}), 9)
			},
			want: "one v1", sizes: "1 clusters, 1 bindings, 1 sets, 1 resources, 1 identities, 1 schemas",
		},
		"of two bindings of one resource, the first by name is used": {
			do: func(i *Index) {
				i.update(newParsedBinding("a", "two", 5, widgets("v2")), false)
				i.update(newParsedBinding("a", "one", 6, widgets("v1")), false)
			},
			want: "one v1", sizes: "1 clusters, 2 bindings, 2 sets, 2 resources, 1 identities, 2 schemas",
		},
		"bindings of other logical clusters are not used": {
			do:    func(i *Index) { i.update(newParsedBinding("b", "one", 5, widgets("v1")), false) },
			sizes: "1 clusters, 1 bindings, 1 sets, 1 resources, 1 identities, 1 schemas",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := NewIndex(storage.NewRegistry(storage.Locality{}))
			test.do(i)
			if got := describeBound(t, i, "a", gr); got != test.want {
				t.Errorf("bound is %q, want %q", got, test.want)
			}
			if got := sizes(i); got != test.sizes {
				t.Errorf("sizes are %s, want %s", got, test.sizes)
			}
		})
	}
}

// The watch of the index may not have the deletion of a binding yet, whose resources another binding may have by now.
func TestDeletedBindingsAreLeftOut(t *testing.T) {
	i := NewIndex(storage.NewRegistry(storage.Locality{}))
	i.update(newParsedBinding("a", "deleted", 5, widgets("v1"), gadgets("id1")), false)
	i.update(newParsedBinding("a", "other", 6, widgets("v2")), false)
	ctx := logicalcluster.With(t.Context(), logicalcluster.MustParseName("a"))
	for name, test := range map[string]struct {
		existing []string
		want     string
	}{
		"both exist":      {[]string{"deleted", "other"}, "deleted gadgets, deleted widgets"},
		"one was deleted": {[]string{"other"}, "other widgets"},
		"both were":       {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, b := range i.list(ctx, func(name string) bool { return slices.Contains(test.existing, name) }) {
				got = append(got, b.Binding+" "+b.GroupResource.Resource)
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestEqualResourceSetsAreShared(t *testing.T) {
	i := NewIndex(storage.NewRegistry(storage.Locality{}))
	const clusters = 1000
	for n := range clusters {
		i.update(newParsedBinding(fmt.Sprintf("c%d", n), "default", uint64(n+1), gadgets("id1"), widgets("v1")), false)
	}
	if got, want := sizes(i), "1000 clusters, 1000 bindings, 1 sets, 2 resources, 2 identities, 2 schemas"; got != want {
		t.Fatalf("sizes are %s, want %s", got, want)
	}
	first, _ := i.Get(logicalcluster.With(t.Context(), logicalcluster.MustParseName("c1")), widgets("").GroupResource)
	second, _ := i.Get(logicalcluster.With(t.Context(), logicalcluster.MustParseName("c2")), widgets("").GroupResource)
	if first.Resource != second.Resource {
		t.Error("equal bindings of two clusters do not share a set")
	}
	for n := range clusters {
		i.remove(bindingKey{logicalcluster.MustParseName(fmt.Sprintf("c%d", n)), "default"}, clusters+1)
	}
	if got, want := sizes(i), "0 clusters, 0 bindings, 0 sets, 0 resources, 0 identities, 0 schemas"; got != want {
		t.Errorf("after all deletions sizes are %s, want %s", got, want)
	}
}

func TestGetByIdentity(t *testing.T) {
	i := NewIndex(storage.NewRegistry(storage.Locality{}))
	gr := widgets("").GroupResource
	if i.GetByIdentity(gr, "id1") != nil {
		t.Error("an identity without bindings was found")
	}
	i.update(newParsedBinding("a", "one", 5, widgets("v1")), false)
	i.update(newParsedBinding("b", "one", 6, widgets("v2")), false)
	if found := i.GetByIdentity(gr, "id1"); found == nil || found.Schema != "v2" {
		t.Errorf("found %v, want the one with the latest schema", found)
	}
	if i.GetByIdentity(gr, "id2") != nil || i.GetByIdentity(gadgets("").GroupResource, "id1") != nil {
		t.Error("another identity, or another resource, was found")
	}
	i.remove(bindingKey{logicalcluster.MustParseName("b"), "one"}, 7)
	if found := i.GetByIdentity(gr, "id1"); found == nil || found.Schema != "v1" {
		t.Errorf("found %v, want the remaining one", found)
	}
}

func TestSubscribersGetPreviousAndCurrentResources(t *testing.T) {
	i := NewIndex(storage.NewRegistry(storage.Locality{}))
	var changes []string
	i.Subscribe(func(c Change) {
		var schemas []string
		for _, r := range c.Resources {
			schemas = append(schemas, r.Schema)
		}
		changes = append(changes, c.Cluster.String()+": "+strings.Join(schemas, " "))
	})
	i.update(newParsedBinding("a", "one", 5), false)
	i.update(newParsedBinding("a", "one", 6, widgets("v1")), false)
	i.update(newParsedBinding("a", "one", 7, widgets("v1")), false) // a field that is not indexed changed
	i.update(newParsedBinding("a", "one", 8, widgets("v2")), false)
	terminating := newParsedBinding("a", "one", 9, widgets("v2"))
	terminating.terminating = true
	i.update(terminating, false)
	i.remove(terminating.bindingKey, 10)
	if want := []string{"a: v1", "a: v1 v2", "a: v2", "a: v2"}; !slices.Equal(changes, want) {
		t.Errorf("got changes %q, want %q", changes, want)
	}
}

func TestVirtualVersion(t *testing.T) {
	i := NewIndex(storage.NewRegistry(storage.Locality{}))
	virtual := widgets("v1")
	virtual.Virtual = true
	expect := func(what string, want uint64, wantChanged bool, change func()) {
		t.Helper()
		_, changed := i.VirtualVersion()
		change()
		isChanged := false
		select {
		case <-changed:
			isChanged = true
		default:
		}
		if got, _ := i.VirtualVersion(); got != want || isChanged != wantChanged {
			t.Errorf("%s: version %d, want %d; changed: %v", what, got, want, isChanged)
		}
	}
	expect("stored resources", 0, false, func() { i.update(newParsedBinding("a", "stored", 1, widgets("v1")), false) })
	expect("virtual resources", 2, true, func() { i.update(newParsedBinding("b", "virtual", 2, virtual), false) })
	expect("the same resources", 2, false, func() { i.update(newParsedBinding("b", "virtual", 3, virtual), false) })
	expect("an unbound stored resource", 2, false, func() { i.remove(bindingKey{logicalcluster.MustParseName("a"), "stored"}, 4) })
	expect("an unbound virtual resource", 5, true, func() { i.remove(bindingKey{logicalcluster.MustParseName("b"), "virtual"}, 5) })
	if err := i.onReplace(t.Context(), nil, "7"); err != nil {
		t.Fatal(err)
	}
	if got, _ := i.VirtualVersion(); got != 7 {
		t.Errorf("after the first list: version %d", got)
	}
}
