package kro

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

func metaOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1}
}

// redis is a graph as platform operators write it: a Secret, a StatefulSet that uses it, and a Service that waits for the StatefulSet.
const redis = `
resources:
- id: service
  template:
    apiVersion: v1
    kind: Service
    metadata: {name: "${schema.metadata.name}", namespace: default, labels: {ready: "${string(server.status.readyReplicas)}"}}
    spec:
      selector: {app: "${server.metadata.name}"}
      ports: [{port: 6379}]
- id: server
  readyWhen: ["${server.status.readyReplicas == server.spec.replicas}"]
  template:
    apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: "${schema.metadata.name}"}
    spec:
      serviceName: "${schema.metadata.name}"
      replicas: "${schema.spec.size == 'large' ? 3 : 1}"
      selector: {matchLabels: {app: "${schema.metadata.name}"}}
      template:
        metadata: {labels: {app: "${schema.metadata.name}"}}
        spec:
          containers:
          - name: redis
            image: "redis:7"
            env:
            - name: PASSWORD
              valueFrom: {secretKeyRef: {name: "${secret.metadata.name}", key: password}}
- id: secret
  template:
    apiVersion: v1
    kind: Secret
    metadata: {name: "${schema.metadata.name}-auth"}
    stringData: {password: "${random.seededString(32, schema.metadata.uid)}"}
statusMapping:
  endpoint: "${service.metadata.name}.${service.metadata.namespace}:${string(service.spec.ports[0].port)}"
  replicas: "${server.spec.replicas}"
  engine: {name: redis, size: "${schema.spec.size}"}
connection:
  password: "${string(secret.data.password)}"
  host: "${service.metadata.name}"
`

func TestBackend(t *testing.T) {
	e := newEnv(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a graph becomes ready, is updated and removed", e.testLifecycle},
		{"the shipped Templates", e.testShipped},
		{"mistakes have a path", e.testMistakes},
		{"a kind appears later", e.testAppearingKind},
		{"resources can be left out", e.testIncludeWhen},
		{"collections follow their lists", e.testForEach},
		{"instances have a limited number of objects", e.testObjects},
		{"objects of others are read in the namespace of the tenant", e.testExternalRef},
		{"drift is reported and repaired", e.testDrift},
		{"tenants with equal names do not meet", e.testTenants},
		{"what is used is deleted last", e.testDeletionOrder},
		{"what is pruned is kept in mind until it is gone", e.testPrune},
		{"a version that is not served any more", e.testVersions},
		{"an interrupted instance is completed and leaves nothing", e.testInterruptions},
		{"an edit that breaks the Template leaves instances as they are", e.testBrokenTemplate},
		{"values that cannot be applied", e.testValues},
		{"objects that the cluster refuses", e.testRefusals},
		{"a quota that is exhausted", e.testQuota},
	} {
		t.Run(test.name, test.run)
	}
}

func (e *env) testLifecycle(t *testing.T) {
	template := newTemplate(t, "redis", redis)
	e.setUp(t, template)
	small := newInstance(t, template, "first", "mine", "size: small")
	if state := e.apply(t, small); state.Phase != infrastructurev1alpha1.PhaseProvisioning || state.Message != "1 of 3 parts are ready." || len(state.Outputs) > 0 {
		t.Fatalf("before its StatefulSet is ready: %+v", state)
	}
	if e.get(t, "first", "v1", "Service", "mine") != nil {
		t.Error("the Service exists before the StatefulSet that it depends on is ready")
	}
	e.setReady(t, "first", "mine", 1)
	state := e.apply(t, small)
	if state.Phase != infrastructurev1alpha1.PhaseReady || state.Outputs["endpoint"] != "mine.first:6379" || state.Outputs["replicas"] != int64(1) {
		t.Fatalf("ready: %+v", state)
	}
	password := state.Connection["password"]
	if engine, _ := state.Outputs["engine"].(map[string]any); engine["name"] != "redis" || engine["size"] != "small" || len(password) != 32 || state.Connection["host"] != "mine" {
		t.Errorf("outputs: %v", state.Outputs)
	}
	server := e.get(t, "first", "apps/v1", "StatefulSet", "mine")
	if server.GetLabels()[group+"/cluster"] != "first" || strings.Contains(strings.Join(keys(server.GetLabels()), " "), "kro") {
		t.Errorf("labels %v", server.GetLabels())
	}
	if again := e.apply(t, small); again.Connection["password"] != password {
		t.Error("the password changes")
	}
	if after := e.get(t, "first", "apps/v1", "StatefulSet", "mine"); after.GetResourceVersion() != server.GetResourceVersion() {
		t.Error("an instance that has not changed is written")
	}
	large := newInstance(t, template, "first", "mine", "size: large")
	if state := e.apply(t, large); state.Phase != infrastructurev1alpha1.PhaseProvisioning || state.Message != "1 of 3 parts are ready." {
		t.Errorf("while it grows: %+v", state)
	}
	if e.get(t, "first", "v1", "Service", "mine") == nil {
		t.Error("the Service is deleted while its new state is not known")
	}
	e.setReady(t, "first", "mine", 3)
	if state := e.apply(t, large); state.Phase != infrastructurev1alpha1.PhaseReady || state.Outputs["replicas"] != int64(3) {
		t.Errorf("large: %+v", state)
	}
	e.remove(t, large)
	for _, kind := range []struct{ apiVersion, kind, name string }{{"v1", "Service", "mine"}, {"apps/v1", "StatefulSet", "mine"}, {"v1", "Secret", "mine-auth"}} {
		if left := e.get(t, "first", kind.apiVersion, kind.kind, kind.name); left != nil {
			t.Errorf("left: %s", kind.kind)
		}
	}
}

func keys(m map[string]string) []string {
	var list []string
	for key := range m {
		list = append(list, key)
	}
	return list
}
