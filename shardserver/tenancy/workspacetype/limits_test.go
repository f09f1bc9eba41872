package workspacetype

import (
	"context"
	"errors"
	"testing"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestCheckLimits(t *testing.T) {
	r := NewResolver(newFakeReader().
		cluster("root", "root", "").
		cluster("c1", "root:org", "").
		add("root", "root", extends("root:universal"), limitParents()).
		add("root", "universal").
		add("root", "organization", extends("root:universal"), limitParents("root:root"), limitChildren("root:universal")).
		add("root", "team", extends("root:universal"), limitParents("root:organization", "root:team")).
		add("root", "plain").
		add("root", "childless", limitChildren()).
		add("root", "childless-too", extends("root:childless")).
		add("root", "by-cluster", extends("root:universal"), limitParents("c1:own")).
		add("root", "unreadable", extends("root:universal"), limitParents("root:gone:own", "root:org:own")).
		add("c1", "own", extends("root:organization")).
		add("c1", "organization", func(t *tenancyv1alpha1.WorkspaceType) {
			t.Annotations[logicalcluster.PathAnnotationKey] = "root" // as an administrator could set it
		}))

	for name, tc := range map[string]struct {
		child, parent string
		allowed       bool
	}{
		"an organization below root":                         {"root:organization", "root:root", true},
		"an organization below a team":                       {"root:organization", "root:team", false},
		"a team below an organization":                       {"root:team", "root:organization", true},
		"a team below a team":                                {"root:team", "root:team", true},
		"a team below a type that extends organization":      {"root:team", "root:org:own", true},
		"a team below root":                                  {"root:team", "root:root", false},
		"a type that allows no parents":                      {"root:root", "root:root", false},
		"a universal workspace below an organization":        {"root:universal", "root:organization", true},
		"a type that is not universal below an organization": {"root:plain", "root:organization", false},
		"anything below a type without children":             {"root:universal", "root:childless", false},
		"anything below a type that inherits no children":    {"root:universal", "root:childless-too", false},
		"a type that inherits the limit of its base":         {"root:org:own", "root:team", false},
		"a type that inherits the permission of its base":    {"root:org:own", "root:root", true},
		"a limit that names the cluster instead of the path": {"root:by-cluster", "root:org:own", true},
		"a limit with a missing type":                        {"root:unreadable", "root:org:own", true},
		"a type of the same name with a forged path":         {"root:team", "c1:organization", false},
	} {
		t.Run(name, func(t *testing.T) {
			child, parent := aliasesOf(t, r, tc.child), aliasesOf(t, r, tc.parent)
			err := r.CheckLimits(context.Background(), child, parent)
			if tc.allowed && err != nil {
				t.Fatalf("rejected: %v", err)
			}
			if !tc.allowed && !errors.Is(err, ErrNotAllowed) {
				t.Fatalf("got %v, want ErrNotAllowed", err)
			}
		})
	}
}

func aliasesOf(t *testing.T, r *Resolver, text string) []Resolved {
	t.Helper()
	ref, err := ParseReference(text)
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
	return aliases
}
