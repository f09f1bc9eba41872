package workspacetype

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestLocate(t *testing.T) {
	alice := logicalcluster.HomeName("alice").String()
	r := NewResolver(newFakeReader().
		cluster("root", "root", "").
		cluster("c1", "root:org", "").
		cluster("c2", "root:org:team", "").
		cluster(alice, "user:alice", "").
		workspace(alice, "lab", "c3", corev1alpha1.LogicalClusterPhaseReady).
		workspace("root", "new", "", corev1alpha1.LogicalClusterPhaseScheduling).
		workspace("root", "placed", "c4", corev1alpha1.LogicalClusterPhaseScheduling).
		workspace("root", "starting", "c5", corev1alpha1.LogicalClusterPhaseInitializing).
		workspace("root", "down", "c6", corev1alpha1.LogicalClusterPhaseUnavailable).
		workspace("c6", "below", "c7", corev1alpha1.LogicalClusterPhaseReady).
		workspace("root", "broken", "Not A Name", corev1alpha1.LogicalClusterPhaseReady))

	notFound := apierrors.IsNotFound
	for name, tc := range map[string]struct {
		path, want string
		fails      func(error) bool
	}{
		"name":                                {path: "root", want: "root"},
		"unknown name":                        {path: "missing", want: "missing"},
		"system name":                         {path: "system:admin", want: "system:admin"},
		"path":                                {path: "root:org:team", want: "c2"},
		"path from a cluster name":            {path: "c1:team", want: "c2"},
		"home path":                           {path: "user:alice", want: alice},
		"path below a home path":              {path: "user:alice:lab", want: "c3"},
		"initializing workspace":              {path: "root:starting", want: "c5"},
		"unknown workspace":                   {path: "root:nope", fails: notFound},
		"path below an unknown workspace":     {path: "root:nope:team", fails: notFound},
		"workspace without a cluster":         {path: "root:new", fails: notFound},
		"scheduling workspace":                {path: "root:placed", fails: notFound},
		"unavailable workspace":               {path: "root:down", want: "c6"},
		"path below an unavailable workspace": {path: "root:down:below", want: "c7"},
		"wildcard":                            {path: "*", fails: notFound},
		"invalid cluster name":                {path: "root:broken", fails: func(err error) bool { return !notFound(err) }},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Locate(context.Background(), logicalcluster.MustParsePath(tc.path))
			if tc.fails != nil {
				if err == nil || !tc.fails(err) {
					t.Fatalf("got %q, %v", got, err)
				}
				return
			}
			if err != nil || got.String() != tc.want {
				t.Fatalf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestParseReference(t *testing.T) {
	for name, tc := range map[string]struct {
		in, path, name string
		fails          bool
	}{
		"a type in root":             {in: "root:universal", path: "root", name: "universal"},
		"a type further down":        {in: "root:org:team", path: "root:org", name: "team"},
		"a home path":                {in: "user:alice:own", path: "user:alice", name: "own"},
		"a name alone":               {in: "universal", fails: true},
		"no path":                    {in: ":universal", fails: true},
		"no name":                    {in: "root:", fails: true},
		"an invalid path":            {in: "Root:universal", fails: true},
		"a path over all workspaces": {in: "*:universal", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseReference(tc.in)
			if tc.fails {
				if err == nil {
					t.Fatalf("got %+v, want an error", got)
				}
				return
			}
			if err != nil || got.Path.String() != tc.path || got.Name != tc.name || got.String() != tc.in {
				t.Fatalf("got %+v, %v", got, err)
			}
		})
	}
}
