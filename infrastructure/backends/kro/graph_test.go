package kro

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
)

// names returns the names of the ConfigMaps of instances of a tenant.
func (e *env) names(t *testing.T, tenant string) []string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := e.c.List(t.Context(), &list, client.InNamespace(tenant), client.HasLabels{group + "/instance"}); err != nil {
		t.Fatal(err)
	}
	var found []string
	for i := range list.Items {
		if !strings.HasPrefix(list.Items[i].Name, "inventory-") {
			found = append(found, list.Items[i].Name)
		}
	}
	slices.Sort(found)
	return found
}

func (e *env) expectNames(t *testing.T, tenant string, want ...string) {
	t.Helper()
	if got := e.names(t, tenant); !slices.Equal(got, want) {
		t.Errorf("%s has %v, want %v", tenant, got, want)
	}
}

// ready applies an instance, which must be ready.
func (e *env) ready(t *testing.T, i instance.Instance) instance.State {
	t.Helper()
	state := e.apply(t, i)
	if state.Phase != infrastructurev1alpha1.PhaseReady {
		t.Fatalf("%s of %s: %+v", i.Object.GetName(), i.Cluster, state)
	}
	return state
}

func (e *env) testIncludeWhen(t *testing.T) {
	template := newTemplate(t, "included", `
resources:
- {id: main, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${schema.metadata.name}"}}}
- {id: backup, includeWhen: ["${schema.spec.?backup.orValue(false)}"], template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${main.metadata.name}-backup"}}}
- {id: schedule, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${backup.metadata.name}-schedule"}}}
statusMapping: {main: "${main.metadata.name}", schedule: "${schedule.metadata.name}"}
`)
	e.setUp(t, template)
	without, with := newInstance(t, template, "included", "mine", "size: small"), newInstance(t, template, "included", "mine", "{size: small, backup: true}")
	if state := e.ready(t, without); state.Outputs["main"] != "mine" || len(state.Outputs) != 1 {
		t.Errorf("outputs without a backup: %v", state.Outputs)
	}
	e.expectNames(t, "included", "mine")
	if state := e.ready(t, with); state.Outputs["schedule"] != "mine-backup-schedule" {
		t.Errorf("outputs with a backup: %v", state.Outputs)
	}
	e.expectNames(t, "included", "mine", "mine-backup", "mine-backup-schedule")
	e.ready(t, without)
	e.expectNames(t, "included", "mine")
	e.remove(t, without)
	e.expectNames(t, "included")
}

func (e *env) testForEach(t *testing.T) {
	template := newTemplate(t, "collection", `
resources:
- id: users
  forEach: [{user: "${schema.spec.users}"}, {role: "${['reader', 'writer']}"}]
  readyWhen: ["${each.data.user != ''}"]
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${schema.metadata.name}-${user}-${role}"}, data: {user: "${user}"}}
- {id: list, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${schema.metadata.name}"}, data: {users: "${users.map(u, u.metadata.name).join(',')}"}}}
statusMapping: {count: "${size(users)}"}
`)
	e.setUp(t, template)
	of := func(users ...string) instance.Instance {
		return newInstance(t, template, "collection", "mine", "{size: small, users: ["+strings.Join(users, ", ")+"]}")
	}
	if state := e.ready(t, of("ann", "bob")); state.Outputs["count"] != int64(4) {
		t.Errorf("outputs: %v", state.Outputs)
	}
	e.expectNames(t, "collection", "mine", "mine-ann-reader", "mine-ann-writer", "mine-bob-reader", "mine-bob-writer")
	if list := e.get(t, "collection", "v1", "ConfigMap", "mine"); list.Object["data"].(map[string]any)["users"] != "mine-ann-reader,mine-ann-writer,mine-bob-reader,mine-bob-writer" {
		t.Errorf("data %v", list.Object["data"])
	}
	if labels := e.get(t, "collection", "v1", "ConfigMap", "mine-ann-reader").GetLabels(); strings.Contains(fmt.Sprint(labels), marks) {
		t.Errorf("labels %v", labels)
	}
	e.ready(t, of("bob"))
	e.expectNames(t, "collection", "mine", "mine-bob-reader", "mine-bob-writer")
	var crowd []string
	for i := range maxCollection/2 + 1 {
		crowd = append(crowd, fmt.Sprintf("user%d", i))
	}
	for name, users := range map[string][]string{"more than are allowed": crowd, "one twice": {"ann", "ann"}} {
		if state := e.apply(t, of(users...)); state.Phase != infrastructurev1alpha1.PhaseFailed {
			t.Errorf("%s: %+v", name, state)
		}
		e.expectNames(t, "collection", "mine", "mine-bob-reader", "mine-bob-writer")
	}
	e.ready(t, of())
	e.expectNames(t, "collection", "mine")
	e.remove(t, of())
	e.expectNames(t, "collection")
}

func (e *env) testObjects(t *testing.T) {
	var resources, users []string
	for i := range maxObjects/maxCollection + 1 {
		resources = append(resources, fmt.Sprintf(`{id: r%d, forEach: [{user: "${schema.spec.users}"}], template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "r%d-${user}"}}}`, i, i))
	}
	for i := range maxCollection {
		users = append(users, fmt.Sprintf("user%d", i))
	}
	template := newTemplate(t, "large", "resources: ["+strings.Join(resources, ", ")+"]")
	e.setUp(t, template)
	if state := e.apply(t, newInstance(t, template, "large", "mine", "{size: small, users: ["+strings.Join(users, ", ")+"]}")); state.Phase != infrastructurev1alpha1.PhaseFailed {
		t.Errorf("got %+v", state)
	}
	e.expectNames(t, "large")
	mine := newInstance(t, template, "large", "mine", "{size: small, users: [ann]}")
	e.ready(t, mine)
	e.remove(t, mine)
}

func (e *env) testExternalRef(t *testing.T) {
	template := newTemplate(t, "external", `
resources:
- {id: certificate, externalRef: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${schema.metadata.name}-certificate", namespace: default}}}
- {id: zones, externalRef: {apiVersion: v1, kind: ConfigMap, metadata: {selector: {matchLabels: {zone: "${schema.spec.size}"}}}}}
- {id: main, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${schema.metadata.name}"}, data: {text: "${certificate.data.text}", zones: "${string(size(zones))}"}}}
`)
	e.setUp(t, template)
	mine := newInstance(t, template, "external", "mine", "size: small")
	create := func(namespace, name string) *corev1.ConfigMap {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"zone": "small"}}, Data: map[string]string{"text": "of " + namespace}}
		if err := e.c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	create("default", "mine-certificate") // belongs to another owner
	if state := e.apply(t, mine); state.Phase != infrastructurev1alpha1.PhaseProvisioning || state.Message != "1 of 3 parts are ready." || state.RecheckAfter != readingInterval {
		t.Errorf("before it exists: %+v", state)
	}
	e.expectNames(t, "external")
	own := create("external", "mine-certificate")
	e.ready(t, mine)
	if data := e.get(t, "external", "v1", "ConfigMap", "mine").Object["data"].(map[string]any); data["text"] != "of external" || data["zones"] != "1" {
		t.Errorf("data %v", data)
	}
	e.remove(t, mine)
	if found := e.get(t, "external", "v1", "ConfigMap", own.Name); found == nil || found.GetResourceVersion() != own.ResourceVersion {
		t.Error("what is only read was changed")
	}
}

func (e *env) testDrift(t *testing.T) {
	template := newTemplate(t, "drifting", "resources: [{id: main, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: \"${schema.metadata.name}\"}, data: {size: \"${schema.spec.size}\"}}}]")
	e.setUp(t, template)
	mine := newInstance(t, template, "drifting", "mine", "size: small")
	e.ready(t, mine)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "drifting", Name: "mine"}}
	for name, disturb := range map[string]func() error{
		"a change": func() error {
			return e.c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"data":{"size":"huge"}}`)))
		},
		"a deletion": func() error { return e.c.Delete(t.Context(), object) },
	} {
		e.drain()
		if err := disturb(); err != nil {
			t.Fatal(err)
		}
		e.waitChanged(t, name, instance.Identity{Cluster: mine.Cluster, Template: "drifting", Name: "mine"})
		e.ready(t, mine)
		if found := e.get(t, "drifting", "v1", "ConfigMap", "mine"); found == nil || found.Object["data"].(map[string]any)["size"] != "small" {
			t.Errorf("after %s: %v", name, found)
		}
	}
	e.remove(t, mine)
}

// drain reads the reported changes.
func (e *env) drain() {
	for {
		select {
		case <-e.backend.Watches.Changed():
		case <-time.After(200 * time.Millisecond):
			return
		}
	}
}

func (e *env) waitChanged(t *testing.T, name string, want instance.Identity) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		select {
		case got := <-e.backend.Watches.Changed():
			if got == want {
				return
			}
		case <-ctx.Done():
			t.Fatalf("%s was not reported", name)
		}
	}
}

func (e *env) testTenants(t *testing.T) {
	template := newTemplate(t, "redis", redis)
	e.setUp(t, template)
	var passwords []string
	for _, tenant := range []string{"one", "two"} {
		i := newInstance(t, template, tenant, "same", "size: small")
		i.Object.SetUID("the-same")
		e.apply(t, i)
		e.setReady(t, tenant, "same", 1)
		passwords = append(passwords, e.ready(t, i).Connection["password"])
	}
	if passwords[0] == passwords[1] {
		t.Error("they have the same password")
	}
	tenants, err := e.backend.Tenants(t.Context())
	if err != nil || !slices.Contains(tenants, newInstance(t, template, "one", "same", "{}").Cluster) {
		t.Errorf("tenants: %v, %v", tenants, err)
	}
	e.remove(t, newInstance(t, template, "one", "same", "size: small"))
	if e.get(t, "one", "v1", "Secret", "same-auth") != nil || e.get(t, "two", "v1", "Secret", "same-auth") == nil {
		t.Error("the deletion of one does not concern one")
	}
	e.remove(t, newInstance(t, template, "two", "same", "size: small"))
}
