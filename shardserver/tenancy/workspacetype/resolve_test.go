package workspacetype

import (
	"context"
	"errors"
	"testing"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestResolve(t *testing.T) {
	alice := logicalcluster.HomeName("alice").String()
	forged := func(path string) func(*tenancyv1alpha1.WorkspaceType) {
		return func(t *tenancyv1alpha1.WorkspaceType) { t.Annotations[logicalcluster.PathAnnotationKey] = path }
	}
	r := NewResolver(newFakeReader().
		cluster("root", "root", "root:root").
		cluster("c1", "root:org", "root:organization").
		cluster("c2", "root:org:team", "root:org:own").
		cluster("c3", "", "c1:own").
		cluster("c4", "root:untyped", "").
		cluster("c5", "root:odd", "nonsense").
		cluster("c6", "root", ""). // as an administrator could set it
		cluster(alice, "user:alice", "root:home").
		add("root", "root", defaultChild("root:organization")).
		add("root", "organization", func(t *tenancyv1alpha1.WorkspaceType) { t.Spec.DefaultChildWorkspaceType = nil }).
		add("root", "home", defaultChild("root:universal")).
		add("root", "universal").
		add("root", "own").
		add("c1", "own", defaultChild("c1:own")).
		add("c3", "pathless").
		add("c2", "forged", forged("root")))

	for name, tc := range map[string]struct {
		parent, ref, want string
		cluster           string
		fails             bool
	}{
		"default of the parent's type":                   {parent: "root", want: "root:organization", cluster: "root"},
		"default with a cluster name":                    {parent: "c2", want: "root:org:own", cluster: "c1"},
		"default, parent's type without a default":       {parent: "c1", fails: true},
		"default, parent without a type":                 {parent: "c4", fails: true},
		"default, parent's type is invalid":              {parent: "c5", fails: true},
		"default, parent does not exist":                 {parent: "gone", fails: true},
		"name in the parent":                             {parent: "c1", ref: "own", want: "root:org:own", cluster: "c1"},
		"name in the nearest ancestor":                   {parent: "c2", ref: "own", want: "root:org:own", cluster: "c1"},
		"name in root":                                   {parent: "c2", ref: "universal", want: "root:universal", cluster: "root"},
		"name in root from a home workspace":             {parent: alice, ref: "universal", want: "root:universal", cluster: "root"},
		"name in a cluster without a path":               {parent: "c3", ref: "pathless", want: "c3:pathless", cluster: "c3"},
		"name in root from root":                         {parent: "root", ref: "own", want: "root:own", cluster: "root"},
		"name in root from a cluster with a forged path": {parent: "c6", ref: "universal", want: "root:universal", cluster: "root"},
		"unknown name":                                   {parent: "c2", ref: "nope", fails: true},
		"path":                                           {parent: "root", ref: "root:org:own", want: "root:org:own", cluster: "c1"},
		"cluster name":                                   {parent: "root", ref: "c1:own", want: "root:org:own", cluster: "c1"},
		"path is not searched upwards":                   {parent: "c2", ref: "root:org:universal", fails: true},
		"unknown path":                                   {parent: "root", ref: "root:nope:own", fails: true},
		"path that is not canonical":                     {parent: "root", ref: "c1:team:forged", fails: true},
		"forged path of a type":                          {parent: "root", ref: "root:forged", fails: true},
		"type with a forged path by cluster name":        {parent: "root", ref: "c2:forged", want: "c2:forged", cluster: "c2"},
		"type with a forged path by name":                {parent: "c2", ref: "forged", want: "c2:forged", cluster: "c2"},
	} {
		t.Run(name, func(t *testing.T) {
			ref := references([]string{tc.ref})[0]
			wanted, err := toReference(ref)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Resolve(context.Background(), logicalcluster.MustParseName(tc.parent), wanted)
			if tc.fails {
				if !errors.Is(err, ErrUnresolvable) {
					t.Fatalf("got %+v, %v; want ErrUnresolvable", got.Reference, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Cluster.String() != tc.cluster {
				t.Errorf("found in %q, want %q", got.Cluster, tc.cluster)
			}
			if back, err := r.Get(context.Background(), got.Reference); err != nil || back.key() != got.key() {
				t.Errorf("reference %q resolves to %v, %v", got.Reference, back.key(), err)
			}
			if got.Reference.String() != tc.want {
				t.Errorf("reference %q, want %q", got.Reference, tc.want)
			}
		})
	}
}

func TestResolveReadErrors(t *testing.T) {
	r := NewResolver(failingReader{})
	_, err := r.Resolve(context.Background(), logicalcluster.Root, Reference{Name: "universal"})
	if err == nil || errors.Is(err, ErrUnresolvable) {
		t.Fatalf("got %v, want an error that is not ErrUnresolvable", err)
	}
}
