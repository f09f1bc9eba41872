package infrastructure_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testValues lets tenants choose names of objects and outputs. For every invalid value, the status of the instance explains the error, and the
// instance becomes ready when the value is repaired.
func (e *instancesEnv) testValues(t *testing.T) {
	const fixed, chosen = "redis-${self.metadata.name}-extra", "${self.spec.name}"
	e.replace(t, fixed, chosen)
	e.replace(t, `"outputs":{`, `"outputs":{"copy":"`+chosen+`",`)
	e.ready(t, "redis")
	instance := newInstance("values", "large")
	shardtesting.Eventually(t, "instances to be served", func(ctx context.Context) error {
		_, err := e.of(e.second).inTenant(t, "redis").Create(ctx, instance, metav1.CreateOptions{})
		return err
	})
	for _, test := range []struct{ name, size, reason, message string }{
		{"a/b", "large", "Failed", "The values of this instance cannot be applied"},
		{"", "large", "Failed", "The values of this instance cannot be applied"},
		{"..", "large", "Failed", "The values of this instance cannot be applied"},
		{strings.Repeat("a", 1<<20), "large", "Failed", "The values of this instance cannot be applied"},
		{strings.Repeat("a", 1<<20), "small", "OutputsTooLarge", "too large to be stored with its outputs"},
	} {
		e.set(t, "values", test.name, test.size)
		status := e.waitPhase(t, e.second, "values", infrastructurev1alpha1.PhaseFailed).Object["status"].(map[string]any)
		ready := status["conditions"].([]any)[0].(map[string]any)
		if message := status["message"].(string); ready["reason"] != test.reason || !strings.Contains(message, test.message) {
			t.Errorf("with %d bytes of name, %.10q, and size %s: %v, message %q", len(test.name), test.name, test.size, ready, message)
		}
	}
	e.set(t, "values", "short", "large")
	if status := e.waitPhase(t, e.second, "values", infrastructurev1alpha1.PhaseReady).Object["status"].(map[string]any); status["copy"] != "short" {
		t.Errorf("status %v", status)
	}
	if err := e.of(e.second).inTenant(t, "redis").Delete(t.Context(), "values", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitAbsent(t, e.second, "short")
	e.replace(t, `"copy":"`+chosen+`",`, "")
	e.replace(t, chosen, fixed)
	e.ready(t, "redis")
}

// set changes the values of an instance of the second tenant.
func (e *instancesEnv) set(t *testing.T, instance, name, size string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"name": name, "size": size}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.of(e.second).inTenant(t, "redis").Patch(t.Context(), instance, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
