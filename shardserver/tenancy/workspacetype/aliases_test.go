package workspacetype

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// failingReader is a reader whose storage is unavailable.
type failingReader struct{ *fakeReader }

var errDown = errors.New("storage is unavailable")

func (failingReader) LogicalCluster(context.Context, logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return nil, errDown
}

func (failingReader) Workspace(context.Context, logicalcluster.Name, string) (*tenancyv1alpha1.Workspace, error) {
	return nil, errDown
}

func (failingReader) WorkspaceType(context.Context, logicalcluster.Name, string) (*tenancyv1alpha1.WorkspaceType, error) {
	return nil, errDown
}

func TestAliases(t *testing.T) {
	r := NewResolver(newFakeReader().
		cluster("root", "root", "").
		cluster("c1", "root:org", "").
		add("root", "alone").
		add("root", "one", extends("root:alone")).
		add("root", "two", extends("root:one")).
		add("root", "both", extends("root:two", "root:other")).
		add("root", "other").
		add("root", "left", extends("root:alone")).
		add("root", "right", extends("root:alone")).
		add("root", "diamond", extends("root:left", "root:right")).
		add("root", "twice", extends("root:alone", "root:alone")).
		add("root", "shortcut", extends("root:one", "root:alone")).
		add("root", "self", extends("root:self")).
		add("root", "ring-a", extends("root:ring-b")).
		add("root", "ring-b", extends("root:ring-c")).
		add("root", "ring-c", extends("root:ring-a")).
		add("root", "into-ring", extends("root:alone", "root:ring-a")).
		add("root", "orphan", extends("root:missing")).
		add("root", "child-of-orphan", extends("root:orphan")).
		add("c1", "pathless", extends("sibling")).
		add("c1", "sibling", extends("root:alone")).
		add("c1", "same-by-name", extends("root:org:sibling", "c1:sibling")))

	for name, tc := range map[string]struct {
		of, want string
		wantErr  []string
	}{
		"type without bases":               {of: "root:alone", want: "alone"},
		"base precedes the type":           {of: "root:one", want: "alone one"},
		"base precedes its own bases":      {of: "root:two", want: "one alone two"},
		"depth first":                      {of: "root:both", want: "two one alone other both"},
		"diamond":                          {of: "root:diamond", want: "left alone right diamond"},
		"duplicate base":                   {of: "root:twice", want: "alone twice"},
		"base that was already visited":    {of: "root:shortcut", want: "one alone shortcut"},
		"base without a path":              {of: "root:org:pathless", want: "sibling alone pathless"},
		"base by path and by cluster name": {of: "root:org:same-by-name", want: "sibling alone same-by-name"},
		"type that extends itself":         {of: "root:self", wantErr: []string{`"root:self" extends itself`}},
		"cycle":                            {of: "root:ring-a", wantErr: []string{`"root:ring-a" extends itself`, "root:ring-a -> root:ring-b -> root:ring-c -> root:ring-a"}},
		"cycle of a base":                  {of: "root:into-ring", wantErr: []string{`"root:ring-a" extends itself`}},
		"missing base":                     {of: "root:orphan", wantErr: []string{`"root:orphan" extends "root:missing"`}},
		"missing base of a base":           {of: "root:child-of-orphan", wantErr: []string{`"root:orphan" extends "root:missing"`}},
	} {
		t.Run(name, func(t *testing.T) {
			ref, err := ParseReference(tc.of)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := r.Get(context.Background(), ref)
			if err != nil {
				t.Fatal(err)
			}
			aliases, err := r.Aliases(context.Background(), leaf)
			if tc.wantErr != nil {
				if !errors.Is(err, ErrUnresolvable) {
					t.Fatalf("got %v, want ErrUnresolvable", err)
				}
				for _, text := range tc.wantErr {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%q does not contain %q", err, text)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, alias := range aliases {
				names = append(names, alias.Name)
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLifecycle(t *testing.T) {
	r := NewResolver(newFakeReader().
		cluster("root", "root", "").
		cluster("c1", "root:org", "").
		add("root", "universal", initializer, binds("tenancy.kcp.io"), binds("topology.kcp.io")).
		add("root", "plain").
		add("c1", "own", initializer, terminator, extends("root:universal")).
		add("c1", "last", terminator, extends("own")))

	for name, tc := range map[string]struct {
		of           string
		initializers []corev1alpha1.LogicalClusterInitializer
		terminators  []corev1alpha1.LogicalClusterTerminator
	}{
		"type without lifecycle": {of: "root:plain"},
		"default bindings are last": {
			of:           "root:universal",
			initializers: []corev1alpha1.LogicalClusterInitializer{"root:universal", "system:apibindings"},
		},
		"names contain the cluster, in alias order": {
			of:           "root:org:own",
			initializers: []corev1alpha1.LogicalClusterInitializer{"root:universal", "c1:own", "system:apibindings"},
			terminators:  []corev1alpha1.LogicalClusterTerminator{"c1:own"},
		},
		"inherited from bases": {
			of:           "root:org:last",
			initializers: []corev1alpha1.LogicalClusterInitializer{"c1:own", "root:universal", "system:apibindings"},
			terminators:  []corev1alpha1.LogicalClusterTerminator{"c1:own", "c1:last"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ref, err := ParseReference(tc.of)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := r.Get(context.Background(), ref)
			if err != nil {
				t.Fatal(err)
			}
			aliases, err := r.Aliases(context.Background(), leaf)
			if err != nil {
				t.Fatal(err)
			}
			if got := Initializers(aliases); !slices.Equal(got, tc.initializers) {
				t.Errorf("initializers %v, want %v", got, tc.initializers)
			}
			if got := Terminators(aliases); !slices.Equal(got, tc.terminators) {
				t.Errorf("terminators %v, want %v", got, tc.terminators)
			}
		})
	}
}
