package opentofu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func parseKind(kind string) schema.GroupVersionKind {
	name, group, _ := strings.Cut(kind, "/")
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: name}
}

// database is a module with all features that Templates use.
const database = `
variable "size" {
  type = number
  validation {
    condition     = var.size < 100
    error_message = "the-size-is-too-large"
  }
}
variable "name" { type = string }
resource "terraform_data" "server" {
  input = { size = var.size, name = var.name }
}
output "endpoint" { value = "${terraform_data.server.output.name}.example.org" }
output "size" { value = terraform_data.server.output.size }
output "password" {
  value     = "secret-of-${var.name}"
  sensitive = true
}
output "internal" { value = "not-for-tenants" }
`

func databaseConfig(more map[string]any) map[string]any {
	config := map[string]any{
		"module":    map[string]any{"inline": map[string]any{"main.tf": database}},
		"variables": map[string]any{"size": "${self.spec.size}", "name": "${self.spec.name}"},
		"outputs":   []string{"endpoint", "size"}, "connection": []string{"password", "endpoint"},
	}
	for key, value := range more {
		config[key] = value
	}
	return config
}

// gated is a module whose second resource waits until a file exists.
const gated = `
variable "gate" { type = string }
resource "terraform_data" "first" { input = "first" }
resource "terraform_data" "second" {
  input = terraform_data.first.id
  provisioner "local-exec" { command = "while [ ! -e ${var.gate} ]; do /bin/sleep 0.05; done" }
}
output "first" { value = terraform_data.first.id }
`

func TestRuns(t *testing.T) {
	e := newEnv(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"an instance is created, changed and removed", e.testLifecycle},
		{"what tenants write is not evaluated", e.testValuesAreData},
		{"an instance that vanished is destroyed as it was applied", e.testVanished},
		{"runs have no other rights than their instance's", e.testRights},
		{"a failure is repeated, and its details are the operator's", e.testFailure},
		{"differences are reported or repaired", e.testDrift},
		{"a run waits for the lock", e.testLock},
		{"a run that is lost is repeated, and none is beside it", e.testLost},
		{"a run that is terminated saves its state", e.testTerminated},
		{"an instance whose pod does not start can be removed", e.testRemovedBeforeStart},
		{"tenants with instances of one name are apart", e.testTenants},
		{"the state is kept until everything is destroyed", e.testDestroyFails},
		{"credentials are variables of runs, and a retained instance leaves its state", e.testNamespace},
		{"a tenant that is gone is destroyed before its namespace", e.testPurge},
		// The last one, because the API server that it starts ends with it.
		{"the API server is away while a run applies", e.testOutage},
	} {
		t.Run(step.name, step.run)
	}
}

func (e *env) testLifecycle(t *testing.T) {
	o := e.order("lifecycle", "main", databaseConfig(nil), map[string]any{"size": int64(3), "name": "main"})
	if state := o.apply(t); state.Phase != infrastructurev1alpha1.PhaseProvisioning || len(state.Outputs) > 0 || state.RecheckAfter == 0 {
		t.Errorf("the first state is %+v", state)
	}
	state := o.reachReady(t)
	if fmt.Sprint(state.Outputs) != "map[endpoint:main.example.org size:3]" || state.Outputs["size"] != int64(3) {
		t.Errorf("the outputs are %#v", state.Outputs)
	}
	if fmt.Sprint(state.Connection) != "map[endpoint:main.example.org password:secret-of-main]" {
		t.Errorf("the connection is %v", state.Connection)
	}
	o.waitIdle(t)
	unusable := e.order("lifecycle", "main", map[string]any{}, nil)
	if _, err := e.backend.Apply(t.Context(), unusable.Instance); !errors.Is(err, instance.ErrUnusableTemplate) {
		t.Errorf("with a Template that is refused: %v", err)
	}
	before := o.resourceVersions(t)
	o.apply(t)
	if after := o.resourceVersions(t); !slices.Equal(before, after) {
		t.Errorf("a reconciliation without changes has written: before %v, after %v", before, after)
	}
	o.Object.Object["spec"].(map[string]any)["size"] = int64(4)
	if state := o.apply(t); state.Phase != infrastructurev1alpha1.PhaseProvisioning || state.Outputs["size"] != int64(3) {
		t.Errorf("the state while it is changed is %+v", state)
	}
	if state := o.reachReady(t); state.Outputs["size"] != int64(4) {
		t.Errorf("the outputs after a change are %v", state.Outputs)
	}
	o.remove(t)
	e.waitNothing(t, o.namespace())
	if got := o.operations(t); !slices.Equal(got, []string{"apply", "apply", "destroy"}) {
		t.Errorf("the runs were %v", got)
	}
}

// resourceVersions returns the resource versions of all objects of the instance.
func (o *order) resourceVersions(t *testing.T) []string {
	t.Helper()
	var versions []string
	for _, kind := range []string{"Secret", "ConfigMap", "ServiceAccount", "Job/batch", "Lease/coordination.k8s.io", "Role/rbac.authorization.k8s.io"} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(parseKind(kind))
		if err := o.c.List(t.Context(), list, client.InNamespace(o.namespace())); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			versions = append(versions, list.Items[i].Name+"="+list.Items[i].ResourceVersion)
		}
	}
	return versions
}

func (e *env) testValuesAreData(t *testing.T) {
	const value = `${file("/etc/passwd")}-%{ if true }x%{ endif }-${self.metadata.name}`
	o := e.order("values", "main", databaseConfig(nil), map[string]any{"size": int64(1), "name": value})
	if state := o.reachReady(t); state.Outputs["endpoint"] != value+".example.org" {
		t.Errorf("the output is %v", state.Outputs["endpoint"])
	}
	o.remove(t)
}

func (e *env) testVanished(t *testing.T) {
	o := e.order("vanished", "main", databaseConfig(nil), map[string]any{"size": int64(1), "name": "main"})
	o.reachReady(t)
	o.Object.Object = map[string]any{"metadata": map[string]any{"name": "main"}}
	o.remove(t)
	e.waitNothing(t, o.namespace())
	if got := o.operations(t); !slices.Equal(got, []string{"apply", "destroy"}) {
		t.Errorf("the runs were %v", got)
	}
}

func (e *env) testRights(t *testing.T) {
	o := e.order("rights", "main", databaseConfig(nil), map[string]any{"size": int64(1), "name": "main"})
	o.reachReady(t)
	state, inputs := o.secret(t, "-state").Name, o.secret(t, "-inputs").Name
	var accounts corev1.ServiceAccountList
	if err := e.c.List(t.Context(), &accounts, client.InNamespace(o.namespace())); err != nil || len(accounts.Items) != 1 {
		t.Fatalf("service accounts %v, %v", accounts.Items, err)
	}
	for _, test := range []struct {
		verb, resource, name string
		want                 bool
	}{
		{"get", "secrets", state, true}, {"update", "secrets", state, true}, {"get", "secrets", inputs, false}, {"delete", "secrets", state, false},
		{"list", "secrets", "", false}, {"create", "secrets", "", false}, {"get", "configmaps", "", false}, {"create", "pods", "", false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + o.namespace() + ":" + accounts.Items[0].Name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: o.namespace(), Verb: test.verb, Resource: test.resource, Name: test.name},
		}}
		if err := e.c.Create(t.Context(), review); err != nil || review.Status.Allowed != test.want {
			t.Errorf("%s %s %s: allowed %v, %v", test.verb, test.resource, test.name, review.Status.Allowed, err)
		}
	}
	o.remove(t)
}

func (e *env) testFailure(t *testing.T) {
	o := e.order("failure", "main", databaseConfig(nil), map[string]any{"size": int64(100), "name": "main"})
	failed := func(s instance.State) bool { return s.Phase == infrastructurev1alpha1.PhaseFailed }
	state := o.reach(t, "the instance to fail", failed)
	for _, word := range []string{"tofu", "too-large", "job"} {
		if strings.Contains(strings.ToLower(state.Message), word) {
			t.Errorf("the message %q has %q", state.Message, word)
		}
	}
	shardtesting.Eventually(t, "more attempts", func(context.Context) error {
		if state := o.apply(t); !failed(state) {
			t.Fatalf("between attempts the state is %+v", state)
		}
		if runs := o.jobs.Runs(o.namespace()); len(runs) < 3 {
			return fmt.Errorf("runs %v", runs)
		}
		return nil
	})
	o.waitEvent(t, "RunFailed", "the-size-is-too-large")
	o.Object.Object["spec"].(map[string]any)["size"] = int64(1)
	o.reachReady(t)
	o.remove(t)
}

// waitEvent waits for an event for the platform operator.
func (o *order) waitEvent(t *testing.T, reason, text string) {
	t.Helper()
	shardtesting.Eventually(t, "an event", func(ctx context.Context) error {
		o.apply(t)
		var events corev1.EventList
		if err := o.c.List(ctx, &events, client.InNamespace(o.namespace())); err != nil {
			return err
		}
		for i := range events.Items {
			if events.Items[i].Reason == reason && strings.Contains(events.Items[i].Message, text) {
				return nil
			}
		}
		return fmt.Errorf("events %v", events.Items)
	})
}

// forget changes the infrastructure: for these modules, the infrastructure is the content of the state.
func (o *order) forget(t *testing.T) {
	t.Helper()
	state := map[string]any{}
	if err := json.Unmarshal([]byte(o.stateText(t)), &state); err != nil {
		t.Fatal(err)
	}
	state["resources"], state["serial"] = []any{}, state["serial"].(float64)+1
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	secret := o.secret(t, "-state")
	if secret.Data["state"], err = runner.EncodeState(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := o.c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// stateText returns the saved state.
func (o *order) stateText(t *testing.T) string {
	t.Helper()
	text, err := runner.DecodeState(o.secret(t, "-state"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (e *env) testDrift(t *testing.T) {
	spec := map[string]any{"size": int64(1), "name": "main"}
	o := e.order("drift", "main", databaseConfig(map[string]any{"driftInterval": "1s"}), spec)
	if state := o.reachReady(t); state.Message != "" {
		t.Errorf("the message is %q", state.Message)
	}
	o.waitIdle(t)
	o.forget(t)
	o.reach(t, "the difference to be reported", func(s instance.State) bool {
		return s.Phase == infrastructurev1alpha1.PhaseReady && strings.Contains(s.Message, "changed outside") && s.Outputs["endpoint"] == "main.example.org"
	})
	o.waitEvent(t, "Drifted", "differs")
	if text := o.stateText(t); strings.Contains(text, "terraform_data") {
		t.Errorf("it was repaired: %s", text)
	}
	repairing := e.order("drift", "main", databaseConfig(map[string]any{"driftInterval": "1s", "autoApply": true}), spec)
	repairing.reach(t, "the difference to be repaired", func(s instance.State) bool {
		return s.Phase == infrastructurev1alpha1.PhaseReady && s.Message == ""
	})
	if text := o.stateText(t); !strings.Contains(text, "terraform_data") {
		t.Errorf("it was not repaired: %s", text)
	}
	if got := slices.Compact(o.operations(t)); !slices.Equal(got, []string{"apply", "check", "repair"}) {
		t.Errorf("the runs were %v", got)
	}
	repairing.remove(t)
}

// waitIdle waits until no run is active.
func (o *order) waitIdle(t *testing.T) {
	t.Helper()
	shardtesting.Eventually(t, "no run to run", func(ctx context.Context) error {
		var list batchv1.JobList
		if err := o.c.List(ctx, &list, client.InNamespace(o.namespace())); err != nil {
			return err
		}
		for i := range list.Items {
			if len(list.Items[i].Status.Conditions) == 0 {
				return fmt.Errorf("%s runs", list.Items[i].Name)
			}
		}
		return nil
	})
}

func (e *env) testLock(t *testing.T) {
	o := e.order("lock", "main", databaseConfig(nil), map[string]any{"size": int64(1), "name": "main"})
	e.jobs.Hold(true)
	o.apply(t)
	var leases coordinationv1.LeaseList
	if err := e.c.List(t.Context(), &leases, client.InNamespace(o.namespace())); err != nil || len(leases.Items) != 1 {
		t.Fatalf("leases %v, %v", leases.Items, err)
	}
	lease := &leases.Items[0]
	hold := func(holder string, renewed time.Time) {
		t.Helper()
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: ptr.To(metav1.NewMicroTime(renewed)), AcquireTime: ptr.To(metav1.NewMicroTime(renewed))}
		if err := e.c.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	hold("another run", time.Now())
	e.jobs.Hold(false)
	shardtesting.Eventually(t, "the run to run", func(context.Context) error {
		if len(e.jobs.Runs(o.namespace())) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	for range 20 { // renewals of the holder
		if len(o.secret(t, "-state").Data) > 0 || len(o.secret(t, "-result").Data) > 0 {
			t.Fatal("a run without the lock has written")
		}
		hold("another run", time.Now())
		o.apply(t)
	}
	hold("", time.Now())
	o.reachReady(t)
	if got := o.operations(t); !slices.Equal(got, []string{"apply"}) {
		t.Errorf("the runs were %v", got)
	}
	o.remove(t)
}

func gatedConfig(gate string) map[string]any {
	return map[string]any{
		"module":    map[string]any{"inline": map[string]any{"main.tf": gated}},
		"variables": map[string]any{"gate": gate}, "outputs": []string{"first"},
	}
}

// waitApplying waits until a run is applying.
func (o *order) waitApplying(t *testing.T) {
	t.Helper()
	shardtesting.Eventually(t, "a run to apply", func(context.Context) error {
		o.apply(t)
		runs := o.jobs.Runs(o.namespace())
		if len(runs) == 0 || !runs[len(runs)-1].Ended.IsZero() || !strings.Contains(o.jobs.Log(o.namespace(), runs[len(runs)-1].Name), "second: Provisioning") {
			return fmt.Errorf("runs %v", runs)
		}
		return nil
	})
}

func openGate(t *testing.T, gate string) {
	t.Helper()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (e *env) testLost(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	o := e.order("lost", "main", gatedConfig(gate), nil)
	o.waitApplying(t)
	// A provider that has just started finds the active run.
	restarted := *o
	restarted.env = &env{cluster: e.cluster, c: e.c, jobs: e.jobs, backend: e.newBackend()}
	if state := restarted.apply(t); state.Phase != infrastructurev1alpha1.PhaseProvisioning {
		t.Errorf("after a restart of the provider the state is %+v", state)
	}
	// A change of the inputs and a removal wait for it, too.
	changed := e.order("lost", "main", gatedConfig(gate+"-of-others"), nil)
	changed.apply(t)
	if gone, err := e.backend.Delete(t.Context(), o.Instance); gone || err != nil {
		t.Errorf("removing an instance that is being changed: %v, %v", gone, err)
	}
	if killed := e.jobs.Kill(o.namespace()); killed != 1 {
		t.Fatalf("%d runs were killed", killed)
	}
	openGate(t, gate)
	o.reachReady(t)
	if got := o.operations(t); !slices.Equal(got, []string{"apply", "apply"}) {
		t.Errorf("the runs were %v", got)
	}
	o.remove(t)
}

func (e *env) testTerminated(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	o := e.order("terminated", "main", gatedConfig(gate), nil)
	o.waitApplying(t)
	if terminated := e.jobs.Terminate(o.namespace()); terminated != 1 {
		t.Fatalf("%d runs were terminated", terminated)
	}
	o.waitIdle(t)
	text := o.stateText(t)
	openGate(t, gate)
	first, _ := o.reachReady(t).Outputs["first"].(string)
	if first == "" || !strings.Contains(text, first) {
		t.Errorf("resource %q was made before the run was terminated, and is not in its state:\n%s", first, text)
	}
	o.remove(t)
}

func (e *env) testRemovedBeforeStart(t *testing.T) {
	o := e.order("held", "main", databaseConfig(nil), map[string]any{"size": int64(1), "name": "main"})
	e.jobs.Hold(true)
	defer e.jobs.Hold(false)
	o.apply(t)
	o.remove(t)
	e.waitNothing(t, o.namespace())
}

func (e *env) testTenants(t *testing.T) {
	first := e.order("tenant-one", "main", databaseConfig(nil), map[string]any{"size": int64(1), "name": "one"})
	second := e.order("tenant-two", "main", databaseConfig(nil), map[string]any{"size": int64(2), "name": "two"})
	neighbour := e.order("tenant-two", "other", databaseConfig(nil), map[string]any{"size": int64(3), "name": "other"})
	for _, o := range []*order{first, second, neighbour} {
		o.apply(t)
	}
	for o, want := range map[*order]string{first: "one.example.org", second: "two.example.org", neighbour: "other.example.org"} {
		if state := o.reachReady(t); state.Outputs["endpoint"] != want {
			t.Errorf("the output is %v, want %s", state.Outputs, want)
		}
	}
	second.remove(t)
	if left := strings.Join(e.left(t, second.namespace()), "\n"); strings.Contains(left, "main") || !strings.Contains(left, "-state other") {
		t.Errorf("left: %s", left)
	}
	if text := first.stateText(t); !strings.Contains(text, "one") {
		t.Errorf("the state of the first tenant is %s", text)
	}
	first.remove(t)
	neighbour.remove(t)
}

// withLifecycle adds a lifecycle block to the resource of the module.
func withLifecycle(config map[string]any, lifecycle string) map[string]any {
	config["module"] = map[string]any{"inline": map[string]any{"main.tf": strings.Replace(database, "  input = {", "  lifecycle { "+lifecycle+" }\n  input = {", 1)}}
	return config
}

func (e *env) testDestroyFails(t *testing.T) {
	o := e.order("destroy", "main", withLifecycle(databaseConfig(nil), "prevent_destroy = true"), map[string]any{"size": int64(1), "name": "main"})
	o.reachReady(t)
	shardtesting.Eventually(t, "attempts to destroy", func(ctx context.Context) error {
		if gone, err := e.backend.Delete(ctx, o.Instance); gone || err != nil {
			t.Fatalf("gone %v, %v", gone, err)
		}
		if runs := e.jobs.Runs(o.namespace()); len(runs) < 4 {
			return fmt.Errorf("runs %v", runs)
		}
		return nil
	})
	o.waitIdle(t)
	if text := o.stateText(t); !strings.Contains(text, "terraform_data") {
		t.Errorf("the state is %s", text)
	}
	// The platform operator repairs the Template.
	e.order("destroy", "main", databaseConfig(nil), map[string]any{"size": int64(1), "name": "main"}).remove(t)
	e.waitNothing(t, o.namespace())
}

func (e *env) testPurge(t *testing.T) {
	name := strings.Repeat("long-name.", 20) + "end"
	for _, name := range []string{"main", name} {
		e.order("purge", name, databaseConfig(nil), map[string]any{"size": int64(1), "name": "main"}).reachReady(t)
	}
	o := e.order("purge", "main", nil, nil)
	if tenants, err := e.backend.Tenants(t.Context()); err != nil || !slices.Contains(tenants, o.Cluster) {
		t.Errorf("tenants %v, %v", tenants, err)
	}
	shardtesting.Eventually(t, "the namespace to be gone", func(ctx context.Context) error {
		if err := e.backend.Purge(ctx, o.Cluster); err != nil {
			return err
		}
		if err := e.c.Get(ctx, client.ObjectKey{Name: o.namespace()}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if got := e.jobs.Runs(o.namespace()); len(got) != 4 || got[2].Args[0] != "destroy" || got[3].Args[0] != "destroy" {
		t.Errorf("the runs were %v", got)
	}
	e.waitNothing(t, o.namespace())
}

// authenticated is a module that needs credentials in its environment.
const authenticated = `
resource "terraform_data" "server" {
  provisioner "local-exec" { command = "test \"$TOKEN\" = token-of-the-cloud" }
}
output "id" { value = terraform_data.server.id }
`

func (e *env) testNamespace(t *testing.T) {
	config := map[string]any{"module": map[string]any{"inline": map[string]any{"main.tf": authenticated}}, "outputs": []string{"id"}, "credentials": []string{"cloud"}, "retain": true}
	o := e.order("credentials", "main", config, nil)
	if status, err := e.backend.SetupTemplate(t.Context(), o.Template); status.Ready || err == nil || !strings.Contains(err.Error(), "spec.backendConfig.credentials[0]") {
		t.Errorf("without the Secret: %+v, %v", status, err)
	}
	cloud := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cloud"}, Data: map[string][]byte{"TOKEN": []byte("token-of-the-cloud")}}
	if err := e.c.Create(t.Context(), cloud); err != nil {
		t.Fatal(err)
	}
	if status, err := e.backend.SetupTemplate(t.Context(), o.Template); !status.Ready || err != nil {
		t.Errorf("with the Secret: %+v, %v", status, err)
	}
	id, _ := o.reachReady(t).Outputs["id"].(string)
	o.remove(t)
	e.waitNothing(t, o.namespace())
	if got := o.operations(t); !slices.Equal(got, []string{"apply"}) {
		t.Errorf("the runs were %v", got)
	}
	var retained corev1.SecretList
	if err := e.c.List(t.Context(), &retained, client.InNamespace("default"), client.HasLabels{group + "/retained"}); err != nil || len(retained.Items) != 1 {
		t.Fatalf("retained states: %d, %v", len(retained.Items), err)
	}
	if text, err := runner.DecodeState(&retained.Items[0]); err != nil || id == "" || !strings.Contains(string(text), id) {
		t.Errorf("the retained state of %q is %s, %v", id, text, err)
	}
}

func (e *env) testOutage(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	patient := *e
	patient.backend = e.newBackend(func(config *opentofu.Config) { config.LeaseDuration = time.Minute })
	o := patient.order("outage", "main", gatedConfig(gate), nil)
	o.waitApplying(t)
	e.cluster.Kill(t)
	openGate(t, gate)
	shardtesting.Eventually(t, "the run to end but for its state", func(context.Context) error {
		if text := e.jobs.Log(o.namespace(), e.jobs.Runs(o.namespace())[0].Name); !strings.Contains(text, "second: Creation complete") {
			return errors.New(text)
		}
		return nil
	})
	e.cluster.Start(t)
	e.cluster.WaitReady(t)
	o.reachReady(t)
	if got := o.operations(t); !slices.Equal(got, []string{"apply"}) {
		t.Errorf("the runs were %v; the log of the first: %s", got, e.jobs.Log(o.namespace(), e.jobs.Runs(o.namespace())[0].Name))
	}
	o.remove(t)
}
