package lifecycle

import (
	"strings"
	"testing"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestValidateStatus(t *testing.T) {
	type status = corev1alpha1.LogicalClusterStatus
	initializers := func(names ...corev1alpha1.LogicalClusterInitializer) status {
		return status{Phase: "Initializing", Initializers: names, Terminators: []corev1alpha1.LogicalClusterTerminator{"root:end"}}
	}
	terminators := func(names ...corev1alpha1.LogicalClusterTerminator) status {
		return status{Phase: "Terminating", Terminators: names}
	}
	for name, tc := range map[string]struct {
		kind          *ownerKind
		before, after status
		want          string // the invalid fields
	}{
		"an initializer removes itself":                        {initializing, initializers("root:own", "root:other"), initializers("root:other"), ""},
		"from the middle of the list":                          {initializing, initializers("root:a", "root:own", "root:b"), initializers("root:a", "root:b"), ""},
		"no change":                                            {initializing, initializers("root:own", "root:other"), initializers("root:own", "root:other"), ""},
		"an initializer removes another one":                   {initializing, initializers("root:own", "root:other"), initializers("root:own"), "status.initializers"},
		"all are removed":                                      {initializing, initializers("root:own", "root:other"), initializers(), "status.initializers"},
		"another one is replaced":                              {initializing, initializers("root:own", "root:other"), initializers("root:own", "root:new"), "status.initializers"},
		"the order changes":                                    {initializing, initializers("root:own", "root:other"), initializers("root:other", "root:own"), "status.initializers"},
		"one is added":                                         {initializing, initializers("root:own"), initializers("root:own", "root:new"), "status.initializers"},
		"a duplicate is added":                                 {initializing, initializers("root:own"), initializers("root:own", "root:own"), "status.initializers"},
		"the phase changes":                                    {initializing, initializers("root:own"), status{Phase: "Ready", Initializers: initializers("root:own").Initializers, Terminators: initializers().Terminators}, "status.phase"},
		"terminators are removed":                              {initializing, initializers("root:own"), status{Phase: "Initializing", Initializers: initializers("root:own").Initializers}, "status.terminators"},
		"the URL changes":                                      {initializing, initializers("root:own"), status{URL: "https://other", Phase: "Initializing", Initializers: initializers("root:own").Initializers, Terminators: initializers().Terminators}, "status.URL"},
		"a terminator removes itself":                          {terminating, terminators("root:own", "root:other"), terminators("root:other"), ""},
		"a terminator removes another one":                     {terminating, terminators("root:own", "root:other"), terminators("root:own"), "status.terminators"},
		"a terminator with the name of an initializer":         {terminating, status{Initializers: initializers("root:own").Initializers, Terminators: terminators("root:own").Terminators}, status{Terminators: terminators("root:own").Terminators}, "status.initializers"},
		"an initializer with the name of a terminator":         {initializing, status{Initializers: initializers("root:own").Initializers, Terminators: terminators("root:own").Terminators}, status{Initializers: initializers("root:own").Initializers}, "status.terminators"},
		"the owner is not in the list, no change":              {terminating, terminators("root:other"), terminators("root:other"), ""},
		"the owner is not in the list and removes another one": {terminating, terminators("root:other"), terminators(), "status.terminators"},
	} {
		t.Run(name, func(t *testing.T) {
			var invalidFields []string
			for _, err := range tc.kind.validateStatus("root:own", &tc.before, &tc.after) {
				invalidFields = append(invalidFields, err.Field)
			}
			if got := strings.Join(invalidFields, ","); got != tc.want {
				t.Errorf("invalid fields are %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseWorkspaceType(t *testing.T) {
	for name, tc := range map[string]struct{ in, cluster, typeName string }{
		"a type of root":                   {"root:universal", "root", "universal"},
		"a type of a workspace":            {"2cynbfy2m0wtjqcs:prep", "2cynbfy2m0wtjqcs", "prep"},
		"a path instead of a cluster name": {"root:org:prep", "", ""},
		"a system initializer":             {"system:apibindings", "", ""},
		"no colon":                         {"universal", "", ""},
		"no type name":                     {"root:", "", ""},
		"no cluster name":                  {":x", "", ""},
		"empty":                            {"", "", ""},
		"an invalid cluster name":          {"Ro/ot:x", "", ""},
		"the wildcard":                     {"*:x", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, typeName, ok := parseWorkspaceType(tc.in)
			if !ok {
				cluster, typeName = logicalcluster.Name{}, ""
			}
			if cluster.String() != tc.cluster || typeName != tc.typeName {
				t.Errorf("got %q %q", cluster, typeName)
			}
		})
	}
}
