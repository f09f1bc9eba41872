package opentofu

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/internal/golden"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func testRenderer() (*renderer, runtimecluster.Set) {
	tenant, err := logicalcluster.ParseName("2vh2vxnq5n3kz1r5")
	if err != nil {
		panic(err) // constant
	}
	return &renderer{group: infrastructurev1alpha1.GroupName, image: "registry.example.org/runner:1", leaseDuration: time.Minute},
		runtimecluster.Set{Tenant: tenant, Template: "database", Version: "1.0.0", Instance: "main"}
}

func TestObjects(t *testing.T) {
	for name, change := range map[string]func(map[string]any){
		"defaults":    nil,
		"credentials": func(config map[string]any) { config["credentials"], config["retain"] = []any{"cloud"}, true },
		"settings": func(config map[string]any) {
			config["image"], config["timeout"], config["resources"] = "registry.example.org/other:2", "1h", map[string]any{"limits": map[string]any{"memory": "4Gi"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := parseConfig(template(t, validModule, change), false)
			if err != nil {
				t.Fatal(err)
			}
			with, err := parsed.inputs(map[string]any{"spec": map[string]any{"size": "small"}})
			if err != nil {
				t.Fatal(err)
			}
			r, set := testRenderer()
			objects, err := r.render(set, with, map[string][]byte{"TOKEN": []byte("x")}, nextRun(nameOf(set), nil, decision{start: runner.Apply, attempt: 1}, with.settings.Revision))
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name, objects...)
		})
	}
}

// TestInputsAreReadBack checks that inputs survive storage, because they are needed to destroy an instance.
func TestInputsAreReadBack(t *testing.T) {
	parsed, err := parseConfig(template(t, validModule, func(config map[string]any) { config["timeout"] = "1h" }), false)
	if err != nil {
		t.Fatal(err)
	}
	with, err := parsed.inputs(map[string]any{"spec": map[string]any{"size": "small"}})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := testRenderer()
	secret, err := r.inputs("x", with)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseInputs(secret)
	if err != nil {
		t.Fatal(err)
	}
	if revision, err := got.revision(); err != nil || revision != with.settings.Revision || got.settings.Revision != revision || got.settings.Run.Timeout.Duration != time.Hour {
		t.Errorf("got %+v, %s, %v", got, revision, err)
	}
}

func TestRunOfJob(t *testing.T) {
	r, set := testRenderer()
	next := nextRun(nameOf(set), &run{sequence: 6}, decision{start: runner.Destroy, attempt: 3}, "b")
	job := r.job(set, &runSettings{}, next)
	got := r.runOf(job)
	if !got.active || !got.pending || got.name != next.name || got.sequence != 7 || got.attempt != 3 || got.operation != runner.Destroy || got.revision != "b" || got.image != r.image {
		t.Errorf("got %+v", got)
	}
	at := metav1.NewTime(now)
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}
	if got := r.runOf(job); !got.active {
		t.Error("a Job that is about to fail is not active")
	}
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: at})
	if got := r.runOf(job); got.active || got.pending || got.succeeded || !got.finished.Equal(now) {
		t.Errorf("got %+v", got)
	}
}

// TestOfSeveralKeysThatAreNoVariablesTheFirstIsNamed checks that the error is stable: conditions contain it, and another key would cause a write.
func TestOfSeveralKeysThatAreNoVariablesTheFirstIsNamed(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "backend", Name: "cloud"}, Data: map[string][]byte{"4": nil, "3": nil, "2": nil, "1": nil}}
	b := &Backend{Backend: &runtimecluster.Backend{Cluster: &runtimecluster.Cluster{Client: fake.NewClientBuilder().WithObjects(secret).Build()}}, namespace: "backend"}
	for range 8 {
		if _, err := b.credentials(t.Context(), []string{"cloud"}); err == nil || !strings.Contains(err.Error(), `key "1"`) {
			t.Errorf("got %v", err)
		}
	}
}
