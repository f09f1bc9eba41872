package kro

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func (e *env) testMistakes(t *testing.T) {
	object := func(rest string) string {
		return `resources: [{id: one, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}` + rest + `}}]`
	}
	for name, test := range map[string]struct{ config, path, text string }{
		"a kind that does not exist":       {`resources: [{id: one, template: {apiVersion: example.org/v1, kind: Nothing, metadata: {name: a}}}]`, "spec.backendConfig.resources[0].template", "does not exist"},
		"a kind without namespace":         {`resources: [{id: one, template: {apiVersion: v1, kind: Namespace, metadata: {name: a}}}]`, "spec.backendConfig.resources[0].template", "not namespaced"},
		"a reference without namespace":    {`resources: [{id: one, externalRef: {apiVersion: v1, kind: Node, metadata: {name: a}}}]`, "spec.backendConfig.resources[0].externalRef", "not namespaced"},
		"a field that does not exist":      {object(`, dta: {a: b}`), "spec.backendConfig.resources[0].template.dta", "dta"},
		"a value of another type":          {object(`, data: {a: "${1}"}`), "spec.backendConfig.resources[0].template.data.a", "int"},
		"a constant of another type":       {object(`, data: {a: 1}`), "spec.backendConfig.resources[0].template.data[a]", "must be a text"},
		"an unknown resource":              {object(`, data: {a: "${two.metadata.name}"}`), "spec.backendConfig", "two"},
		"an unknown field of the instance": {object(`, data: {a: "${schema.spec.colour}"}`), "spec.backendConfig.resources[0].template.data.a", "colour"},
		"labels of the tenant":             {object(`, data: {a: "${schema.metadata.labels['a']}"}`), "spec.backendConfig.resources[0].template.data.a", "labels"},
		"an expression without end":        {`resources: [{id: one, readyWhen: ["${one.data.a == }"], template: ` + configMap + `}]`, "spec.backendConfig.resources[0].readyWhen", "Syntax error"},
		"a condition that is a text":       {`resources: [{id: one, includeWhen: ["${schema.spec.size}"], template: ` + configMap + `}]`, "spec.backendConfig.resources[0].includeWhen", "bool"},
		"a collection of one name":         {`resources: [{id: one, forEach: [{user: "${schema.spec.users}"}], template: ` + configMap + `}]`, "spec.backendConfig.resources[0].forEach", "user"},
		"a circle": {`resources:
- {id: one, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "${two.metadata.name}"}}}
- {id: two, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {a: "${one.metadata.name}"}}}`, "spec.backendConfig", "cycle"},
		"an output of nothing":                   {object(``) + "\nstatusMapping: {a: \"${three.metadata.name}\"}", "spec.backendConfig.statusMapping.a", "three"},
		"a connection of an unknown field":       {object(``) + "\nconnection: {a: \"${one.dta}\"}", "spec.backendConfig.connection.a", "dta"},
		"random strings as long as tenants like": {object(`, data: {a: "${random.seededString(schema.spec.replicas, 'a')}"}`), "spec.backendConfig.resources[0].template", "random string"},
	} {
		t.Run(name, func(t *testing.T) {
			status, err := e.backend.SetupTemplate(t.Context(), newTemplate(t, "mistake", test.config))
			if err != nil || status.Ready || !strings.HasPrefix(status.Message, test.path+":") || !strings.Contains(status.Message, test.text) {
				t.Errorf("got %+v, %v", status, err)
			}
		})
	}
}

func (e *env) testAppearingKind(t *testing.T) {
	template := newTemplate(t, "cluster", `
resources:
- id: cluster
  readyWhen: ["${cluster.status.phase == 'Running'}"]
  template: {apiVersion: databases.example.org/v1, kind: Cluster, metadata: {name: "${schema.metadata.name}"}, spec: {nodes: "${schema.spec.size == 'large' ? 3 : 1}"}}
statusMapping: {nodes: "${cluster.spec.nodes}"}
`)
	status, err := e.backend.SetupTemplate(t.Context(), template)
	if err != nil || status.Ready || !strings.HasPrefix(status.Message, "spec.backendConfig.resources[0].template: databases.example.org/v1, Kind=Cluster does not exist") {
		t.Fatalf("before it exists: %+v, %v", status, err)
	}
	e.createDefinition(t)
	shardtesting.Eventually(t, "the Template to be ready", func(ctx context.Context) error {
		status, err := e.backend.SetupTemplate(ctx, template)
		if err == nil && !status.Ready {
			err = fmt.Errorf("%s", status.Message)
		}
		return err
	})
	mine := newInstance(t, template, "appearing", "mine", "size: large")
	if state := e.apply(t, mine); state.Phase != infrastructurev1alpha1.PhaseProvisioning {
		t.Errorf("before it runs: %+v", state)
	}
	found := e.get(t, "appearing", "databases.example.org/v1", "Cluster", "mine")
	found.Object["status"] = map[string]any{"phase": "Running"}
	if err := e.c.Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	if state := e.apply(t, mine); state.Phase != infrastructurev1alpha1.PhaseReady || state.Outputs["nodes"] != int64(3) {
		t.Errorf("running: %+v", state)
	}
	e.remove(t, mine)
}

// createDefinition creates the CRD of the kind Cluster.
func (e *env) createDefinition(t *testing.T) {
	t.Helper()
	definition := &unstructured.Unstructured{}
	if err := definition.UnmarshalJSON(toJSON(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.databases.example.org}
spec:
  group: databases.example.org
  scope: Namespaced
  names: {plural: clusters, singular: cluster, kind: Cluster, listKind: ClusterList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {nodes: {type: integer}}}
          status: {type: object, properties: {phase: {type: string}}}
`)); err != nil {
		t.Fatal(err)
	}
	if err := e.c.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
}
