package kro

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/seed"
)

// shippedInstances are the specs of instances of the shipped Templates with their defaults, the status of their workloads, and their outputs.
var shippedInstances = map[string]struct{ spec, kind, status, endpoint, connection string }{
	"redis": {"{size: small, version: '7', storage: 1Gi, persistence: true}", "StatefulSet", `{"replicas":1,"observedGeneration":%d,"updatedReplicas":1,"readyReplicas":1}`,
		"redis-%s.%s.svc:6379", "host password port url"},
	"postgres": {"{size: large, version: '15', storage: 1Gi, database: orders}", "StatefulSet", `{"replicas":1,"observedGeneration":%d,"updatedReplicas":1,"readyReplicas":1}`,
		"postgres-%s.%s.svc:5432", "database host password port url username"},
	"application": {"{image: docker.io/library/x:1, port: 8080, replicas: 2, size: medium, env: [{name: A, value: b}]}", "Deployment",
		`{"replicas":2,"observedGeneration":%d,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2}`, "application-%s.%s.svc:80", ""},
}

// testShipped checks that the shipped Templates compile, that a cluster accepts them for any name of an instance, and that they provide the
// documented connections.
func (e *env) testShipped(t *testing.T) {
	shipped, err := seed.Shipped(group)
	if err != nil {
		t.Fatal(err)
	}
	for i := range shipped {
		template := &shipped[i]
		known, ok := shippedInstances[template.Name]
		if !ok {
			continue
		}
		t.Run(template.Name, func(t *testing.T) {
			e.setUp(t, template)
			for _, name := range []string{"mine", strings.Repeat("long-", 12) + "end", "with.dots"} {
				e.testShippedInstance(t, template, name, known.spec, known.kind, known.status, known.endpoint, known.connection)
			}
		})
	}
}

func (e *env) testShippedInstance(t *testing.T, template *infrastructurev1alpha1.Template, name, spec, kind, status, endpoint, connection string) {
	t.Helper()
	tenant := "of-" + template.Name
	ordered := newInstance(t, template, tenant, name, spec)
	if state := e.apply(t, ordered); state.Phase != infrastructurev1alpha1.PhaseProvisioning {
		t.Fatalf("%s, before anything runs: %+v", name, state)
	}
	workloads := &unstructured.UnstructuredList{}
	workloads.SetAPIVersion("apps/v1")
	workloads.SetKind(kind + "List")
	if err := e.c.List(t.Context(), workloads, client.InNamespace(tenant)); err != nil || len(workloads.Items) != 1 {
		t.Fatalf("%s: %d of %s, %v", name, len(workloads.Items), kind, err)
	}
	running := &workloads.Items[0]
	patch := `{"status":` + fmt.Sprintf(status, running.GetGeneration()) + `}`
	if err := e.c.Status().Patch(t.Context(), running, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	state := e.apply(t, ordered)
	if state.Phase != infrastructurev1alpha1.PhaseReady {
		t.Fatalf("%s, while it runs: %+v", name, state)
	}
	if got := state.Outputs["endpoint"]; name == "mine" && got != fmt.Sprintf(endpoint, name, tenant) {
		t.Errorf("endpoint %v", got)
	}
	for _, key := range strings.Fields(connection) {
		if state.Connection[key] == "" {
			t.Errorf("%s: the connection has no %s", name, key)
		}
	}
	if connection != "" {
		e.expectPassword(t, tenant, state.Connection)
	}
	e.unprotect(t, tenant)
	e.remove(t, ordered)
}

// expectPassword checks that a connection contains the password of the only Secret of a tenant.
func (e *env) expectPassword(t *testing.T, tenant string, connection map[string]string) {
	t.Helper()
	secrets := &corev1.SecretList{}
	if err := e.c.List(t.Context(), secrets, client.InNamespace(tenant)); err != nil || len(secrets.Items) != 1 {
		t.Fatalf("%d Secrets, %v", len(secrets.Items), err)
	}
	password := string(secrets.Items[0].Data["password"])
	if len(password) < 24 || connection["password"] != password || !strings.Contains(connection["url"], ":"+password+"@") {
		t.Errorf("the connection has another password than the Secret, or one of %d characters", len(password))
	}
}

// unprotect does what the controller of volumes does when no pod uses a volume.
func (e *env) unprotect(t *testing.T, tenant string) {
	t.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	if err := e.c.List(t.Context(), claims, client.InNamespace(tenant)); err != nil {
		t.Fatal(err)
	}
	for i := range claims.Items {
		if err := e.c.Patch(t.Context(), &claims.Items[i], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Fatal(err)
		}
	}
}
