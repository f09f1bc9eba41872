package workspacetype

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestResolveRemote resolves from the shard of c2, root:org:team, and c3 below it. root is on a second shard,
// c1 on a third.
func TestResolveRemote(t *testing.T) {
	newReader := func() *fakeReader {
		return newFakeReader().
			cluster("root", "root", "root:root").
			cluster("c1", "root:org", "root:organization").
			cluster("c2", "root:org:team", "root:org:own").
			cluster("c3", "root:org:team:lab", "root:universal").
			add("root", "universal").
			add("root", "organization", defaultChild("root:universal")).
			add("c1", "own", defaultChild("c1:own")).
			add("c1", "near").
			add("c2", "near").
			add("c2", "local").
			setRemote("root").
			setRemote("c1")
	}
	for name, tc := range map[string]struct {
		parent, ref string
		want        string // "<reference>@<cluster>"
	}{
		"a type in root, by its path":                          {"c2", "root:universal", "root:universal@root"},
		"a type on a third shard, by its path":                 {"c2", "root:org:own", "root:org:own@c1"},
		"a type on a third shard, by the name of cluster":      {"c2", "c1:own", "root:org:own@c1"},
		"a type of this shard, by a path through other shards": {"c3", "root:org:team:local", "root:org:team:local@c2"},
		"the nearest type of a name is on this shard":          {"c3", "near", "root:org:team:near@c2"},
		"the nearest type of a name is on a third shard":       {"c3", "own", "root:org:own@c1"},
		"a name that only root has":                            {"c3", "universal", "root:universal@root"},
		"the default of a type on a third shard":               {"c2", "", "root:org:own@c1"},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, err := toReference(references([]string{tc.ref})[0])
			if err != nil {
				t.Fatal(err)
			}
			got, err := NewResolver(newReader()).Resolve(context.Background(), logicalcluster.MustParseName(tc.parent), wanted)
			if err != nil {
				t.Fatal(err)
			}
			if text := got.Reference.String() + "@" + got.Cluster.String(); text != tc.want {
				t.Errorf("got %s, want %s", text, tc.want)
			}
		})
	}
	for name, ref := range map[string]string{
		"unknown path": "root:other:own",
		"unknown name": "nope",
	} {
		t.Run(name+" is unresolvable once all shards are synced, and unavailable before", func(t *testing.T) {
			wanted, err := toReference(references([]string{ref})[0])
			if err != nil {
				t.Fatal(err)
			}
			synced, notSynced := newReader(), newReader()
			notSynced.notSynced = apierrors.NewServiceUnavailable("the cache is unavailable")
			if _, err := NewResolver(synced).Resolve(context.Background(), logicalcluster.MustParseName("c3"), wanted); !errors.Is(err, ErrUnresolvable) {
				t.Errorf("got %v, want ErrUnresolvable", err)
			}
			if _, err := NewResolver(notSynced).Resolve(context.Background(), logicalcluster.MustParseName("c3"), wanted); !apierrors.IsServiceUnavailable(err) {
				t.Errorf("got %v, want ServiceUnavailable", err)
			}
		})
	}
}

func TestIndex(t *testing.T) {
	typeOf := func(cluster, path, name string) *tenancyv1alpha1.WorkspaceType {
		return &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			logicalcluster.AnnotationKey: cluster, logicalcluster.PathAnnotationKey: path,
		}}}
	}
	found := func(i *Index, path string) int {
		return len(i.ListByPath(Reference{Path: logicalcluster.MustParsePath(path), Name: "own"}))
	}
	i := newIndex()
	i.replace([]*tenancyv1alpha1.WorkspaceType{typeOf("c1", "root:org", "own"), typeOf("c2", "root:org:team", "own")})
	if found(i, "root:org") != 1 || found(i, "root:org:team") != 1 || i.Size() != 2 {
		t.Fatalf("existing types are missing: %v", i.paths)
	}
	i.update(typeOf("c1", "root:moved", "own"))
	if found(i, "root:org") != 0 || found(i, "root:moved") != 1 {
		t.Errorf("the new path of a type is missing: %v", i.paths)
	}
	i.replace(nil)
	if i.Size() != 0 || len(i.paths) != 0 {
		t.Errorf("types that are missing in a relist are kept: %v", i.paths)
	}
}
