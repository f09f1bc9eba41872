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
		want          string // of the fields found wrong
	}{
		"an initializer takes itself off":           {initializing, initializers("root:own", "root:other"), initializers("root:other"), ""},
		"wherever it stands":                        {initializing, initializers("root:a", "root:own", "root:b"), initializers("root:a", "root:b"), ""},
		"it may stay":                               {initializing, initializers("root:own", "root:other"), initializers("root:own", "root:other"), ""},
		"it cannot take another off":                {initializing, initializers("root:own", "root:other"), initializers("root:own"), "status.initializers"},
		"nor all at once":                           {initializing, initializers("root:own", "root:other"), initializers(), "status.initializers"},
		"nor replace another by as many":            {initializing, initializers("root:own", "root:other"), initializers("root:own", "root:new"), "status.initializers"},
		"nor change the order":                      {initializing, initializers("root:own", "root:other"), initializers("root:other", "root:own"), "status.initializers"},
		"nor add one":                               {initializing, initializers("root:own"), initializers("root:own", "root:new"), "status.initializers"},
		"nor itself once more":                      {initializing, initializers("root:own"), initializers("root:own", "root:own"), "status.initializers"},
		"nor declare the workspace ready":           {initializing, initializers("root:own"), status{Phase: "Ready", Initializers: initializers("root:own").Initializers, Terminators: initializers().Terminators}, "status.phase"},
		"nor take terminators off":                  {initializing, initializers("root:own"), status{Phase: "Initializing", Initializers: initializers("root:own").Initializers}, "status.terminators"},
		"nor say where the workspace is":            {initializing, initializers("root:own"), status{URL: "https://elsewhere", Phase: "Initializing", Initializers: initializers("root:own").Initializers, Terminators: initializers().Terminators}, "status.URL"},
		"a terminator takes itself off":             {terminating, terminators("root:own", "root:other"), terminators("root:other"), ""},
		"a terminator cannot take another off":      {terminating, terminators("root:own", "root:other"), terminators("root:own"), "status.terminators"},
		"a terminator of the initializer's name":    {terminating, status{Initializers: initializers("root:own").Initializers, Terminators: terminators("root:own").Terminators}, status{Terminators: terminators("root:own").Terminators}, "status.initializers"},
		"an initializer of the terminator's name":   {initializing, status{Initializers: initializers("root:own").Initializers, Terminators: terminators("root:own").Terminators}, status{Initializers: initializers("root:own").Initializers}, "status.terminators"},
		"nothing is lost by not being on the list":  {terminating, terminators("root:other"), terminators("root:other"), ""},
		"who is not on the list takes nothing away": {terminating, terminators("root:other"), terminators(), "status.terminators"},
	} {
		t.Run(name, func(t *testing.T) {
			var invalidFields []string
			for _, err := range tc.kind.validateStatus("root:own", &tc.before, &tc.after) {
				invalidFields = append(invalidFields, err.Field)
			}
			if got := strings.Join(invalidFields, ","); got != tc.want {
				t.Errorf("found wrong %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseWorkspaceType(t *testing.T) {
	for name, tc := range map[string]struct{ in, cluster, typeName string }{
		"a type of root":               {"root:universal", "root", "universal"},
		"a type of a workspace":        {"2cynbfy2m0wtjqcs:prep", "2cynbfy2m0wtjqcs", "prep"},
		"a path is not its cluster":    {"root:org:prep", "", ""},
		"the system's own has no type": {"system:apibindings", "", ""},
		"nor has a bare name":          {"universal", "", ""},
		"nor one that ends in nothing": {"root:", "", ""},
		"nor one that starts with it":  {":x", "", ""},
		"nor nothing at all":           {"", "", ""},
		"nor what is no name":          {"Ro/ot:x", "", ""},
		"nor the wildcard":             {"*:x", "", ""},
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
