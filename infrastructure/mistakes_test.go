package infrastructure_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/template"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testMistakes uses outputs that wait for a field, and one that no object can have.
func (e *instancesEnv) testMistakes(t *testing.T) {
	const output, waits, fails = "${other.main.data.size}", "${other.main.data.host}", "${other.main.data.size + 1}"
	e.replace(t, `"outputs":{`, `"outputs":{"host":"`+output+`",`)
	e.waitPhase(t, e.second, "mine", infrastructurev1alpha1.PhaseReady)
	e.replace(t, output, waits)
	waiting := e.waitPhase(t, e.second, "mine", infrastructurev1alpha1.PhaseProvisioning)
	if message := waiting.Object["status"].(map[string]any)["message"]; message != "All parts are ready; the outputs are not known yet." {
		t.Errorf("the message is %q", message)
	}
	e.replace(t, waits, fails)
	failed := e.waitPhase(t, e.second, "mine", infrastructurev1alpha1.PhaseFailed)
	status := failed.Object["status"].(map[string]any)
	if message := status["message"].(string); !strings.Contains(message, "Ask the platform team") || strings.Contains(message, "data.size") {
		t.Errorf("the message is %q", message)
	}
	if reason := status["conditions"].([]any)[0].(map[string]any)["reason"]; reason != "TemplateInvalid" {
		t.Errorf("the reason is %v", reason)
	}
	shardtesting.Eventually(t, "an event of the Template", func(ctx context.Context) error {
		var list corev1.EventList
		if err := e.c.List(ctx, &list, client.InNamespace("default")); err != nil {
			return err
		}
		for i := range list.Items {
			event := &list.Items[i]
			if event.InvolvedObject.Kind == "Template" && event.InvolvedObject.Name == "redis" && event.Reason == "InstancesFail" && strings.Contains(event.Message, "spec.backendConfig.outputs[host]: ") {
				return nil
			}
		}
		return fmt.Errorf("there are %d others", len(list.Items))
	})
	e.replace(t, `,"host":"`+fails+`"`, "")
	for _, tenant := range []string{e.tenant, e.second} {
		e.waitPhase(t, tenant, "mine", infrastructurev1alpha1.PhaseReady)
	}
}

// testExportDeleted deletes the export, whose finalizer blocks the deletion, and follows the advice of the Template to keep the instances.
func (e *instancesEnv) testExportDeleted(t *testing.T) {
	instance := e.waitPhase(t, e.second, "mine", infrastructurev1alpha1.PhaseReady)
	deleted := &apisv1alpha2.APIExport{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: export}, deleted); err != nil {
		t.Fatal(err)
	}
	// Either the provider or the server creates the endpoint slice; the server's belongs to the export, and is deleted with it.
	slice := &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: export}}
	owned := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"%s","kind":"APIExport","name":"%s","uid":"%s"}]}}`, apisv1alpha2.SchemeGroupVersion, export, deleted.UID)
	if err := e.c.Patch(t.Context(), slice, client.RawPatch(types.MergePatchType, []byte(owned))); err != nil {
		t.Fatal(err)
	}
	if err := e.c.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	held := e.waitFor(t, "redis", infrastructurev1alpha1.ConditionSchemaInAPIExport, metav1.ConditionFalse, infrastructurev1alpha1.ReasonAPIExportError)
	finalizer := template.InUseFinalizer(group)
	message := meta.FindStatusCondition(held.Status.Conditions, infrastructurev1alpha1.ConditionSchemaInAPIExport).Message
	for _, next := range []string{"kcp-system/" + export, finalizer, "delete all Templates"} {
		if !strings.Contains(message, next) {
			t.Errorf("the message does not have %q: %s", next, message)
		}
	}
	e.removeFinalizers(t, export)
	// The provider does this at intervals.
	options := catalogue.Options{Group: group, Export: export, Binders: "system:authenticated", Selector: standardSelector(t)}
	if err := catalogue.Ensure(t.Context(), e.c, options); err != nil {
		t.Fatal(err)
	}
	e.ready(t, "redis")
	created := &apisv1alpha2.APIExport{}
	shardtesting.Eventually(t, "the identity of the export", func(ctx context.Context) error {
		err := e.c.Get(ctx, client.ObjectKey{Name: export}, created)
		if err == nil && created.Status.IdentityHash == "" {
			err = fmt.Errorf("status %+v", created.Status)
		}
		return err
	})
	if created.UID == deleted.UID || created.Status.IdentityHash != deleted.Status.IdentityHash {
		t.Errorf("the identity was %s, and is %s", deleted.Status.IdentityHash, created.Status.IdentityHash)
	}
	e.resize(t, e.second, "small")
	e.waitData(t, e.second, "redis-mine", "small")
	e.resize(t, e.second, "large")
	e.waitData(t, e.second, "redis-mine", "large")
	if got := e.waitPhase(t, e.second, "mine", infrastructurev1alpha1.PhaseReady); got.GetUID() != instance.GetUID() {
		t.Error("the instance is another one")
	}
}
