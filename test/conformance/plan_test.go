package conformance

import (
	"strings"
	"testing"
)

func TestPlanReason(t *testing.T) {
	plan := &Plan{
		Packages: []string{"e2e/apimachinery"},
		Partial:  []Part{{Package: "e2e/node", Reason: "containers", Specs: []string{"Secrets should be patched"}}},
		Skipped:  []Skip{{Reason: "pods", Specs: []string{"Garbage collector should delete pods", "Webhooks *"}}},
	}
	for name, tc := range map[string]struct{ text, file, reason string }{
		"a spec of a complete package runs":                      {"[sig-a] Watchers should see [Conformance]", "e2e/apimachinery/watch.go", ""},
		"a skipped spec is matched without tags":                 {"[sig-a] Garbage collector [Serial] should delete pods [Conformance]", "e2e/apimachinery/gc.go", "pods"},
		"a longer text is another spec":                          {"[sig-a] Garbage collector should delete pods of others", "e2e/apimachinery/gc.go", ""},
		"an asterisk matches a prefix":                           {"[sig-a] Webhooks [Slow] should deny", "e2e/apimachinery/webhook.go", "pods"},
		"a named spec of a partial package runs":                 {"[sig-node] Secrets should be patched [Conformance]", "e2e/node/secrets.go", ""},
		"other specs of a partial package are skipped":           {"[sig-node] Pods should run", "e2e/node/pods.go", "containers"},
		"specs of other packages are not in the plan":            {"[sig-apps] Jobs should end", "e2e/apps/job.go", NotInPlan},
		"a package name with the same suffix is not in the plan": {"[sig-a] X", "other-e2e/apimachinery/x.go", NotInPlan},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan.Reason(Spec{Text: tc.text, File: "k8s.io/" + tc.file}); got != tc.reason {
				t.Errorf("got %q, want %q", got, tc.reason)
			}
		})
	}
}

func TestPlanStale(t *testing.T) {
	plan := &Plan{Skipped: []Skip{{Reason: "x", Specs: []string{"A *", "A b", "missing"}}}}
	err := plan.Stale([]Spec{{Text: "[sig] A b"}})
	if err == nil || !strings.Contains(err.Error(), `no spec "missing"`) || !strings.Contains(err.Error(), `"A *" and "A b" both match`) {
		t.Errorf("got %v", err)
	}
	plan.Skipped[0].Specs = []string{"A *"}
	if err := plan.Stale([]Spec{{Text: "[sig] A b"}}); err != nil {
		t.Error(err)
	}
}

func TestLoadPlan(t *testing.T) {
	if _, err := LoadPlan(); err != nil {
		t.Error(err)
	}
}
