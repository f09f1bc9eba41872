package join

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/shardserver/bootstrap/rootapis"
)

// newIdentities returns identities of all exports that the storage depends on, with changes.
func newIdentities(changes ...string) Identities {
	all := Identities{}
	for _, export := range rootapis.Exports() {
		all[export.Name] = "hash of " + export.Name
	}
	for i := 0; i < len(changes); i += 2 {
		all[changes[i]] = changes[i+1]
		if changes[i+1] == "" {
			delete(all, changes[i])
		}
	}
	return all
}

func TestMerge(t *testing.T) {
	for name, tc := range map[string]struct {
		stored, remote, want Identities
		conflict             string // part of the error
	}{
		"new shard stores all":                                    {nil, newIdentities(), newIdentities(), ""},
		"export of a later version is added":                      {newIdentities("migration.kcp.io", ""), newIdentities(), newIdentities(), ""},
		"user-defined export of root is added":                    {newIdentities(), newIdentities("widgets", "x"), newIdentities("widgets", "x"), ""},
		"user-defined export with a changed identity is replaced": {newIdentities("widgets", "x"), newIdentities("widgets", "y"), newIdentities("widgets", "y"), ""},
		"identity that the storage depends on is a conflict":      {newIdentities(), newIdentities("tenancy.kcp.io", "other"), nil, "export tenancy.kcp.io has identity other in root, but objects of this shard are stored under hash of tenancy.kcp.io"},
		"conflict together with a new export":                     {newIdentities("migration.kcp.io", ""), newIdentities("tenancy.kcp.io", "other"), nil, "tenancy.kcp.io"},
		"missing remote identity removes nothing":                 {newIdentities(), newIdentities("topology.kcp.io", ""), newIdentities(), ""},
		"conflicts are reported in a fixed order":                 {newIdentities(), newIdentities("tenancy.kcp.io", "a", "cache.kcp.io", "b"), nil, "under hash of cache.kcp.io; export tenancy.kcp.io"},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(tc.stored)
			got, err := Merge(tc.stored, tc.remote)
			var conflict *ConflictError
			if errors.As(err, &conflict) != (tc.conflict != "") || (tc.conflict != "" && !strings.Contains(err.Error(), tc.conflict)) {
				t.Errorf("got error %v, want %q", err, tc.conflict)
			}
			if !maps.Equal(got, tc.want) || !maps.Equal(tc.stored, before) {
				t.Errorf("got %v, want %v; stored identities changed to %v", got, tc.want, tc.stored)
			}
		})
	}
}

func TestByResource(t *testing.T) {
	for resource, identity := range newIdentities().ByResource() {
		if identity == "" {
			t.Errorf("%s has no identity", resource)
		}
	}
}
