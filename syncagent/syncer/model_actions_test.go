package syncer

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

var (
	primaryKeys = []types.NamespacedName{{Namespace: testKey.Namespace, Name: "a"}, {Namespace: testKey.Namespace, Name: "b"}}
	credNames   = []any{"s1", "s2", ""}
	outNames    = []any{"o1", "o2", ""}
)

const slowFinalizer = "example.org/slow"

// act executes an action of a user or an administrator.
func (m *model) act() {
	pub := pick(m, m.publications)
	w := pick(m, pub.workspaces)
	key := pick(m, primaryKeys)
	m.next++
	switch n := m.rand.IntN(20); {
	case n < 6:
		m.putPrimary(pub, w, key)
	case n < 9:
		m.log("user deletes %s %s/%s", pub.config.WorkspaceResource.Resource, w.name, key.Name)
		m.deleteIn(w.client, pub.config.WorkspaceResource, key)
	case n < 13:
		m.putSecret(w.client, w.name, types.NamespacedName{Namespace: testKey.Namespace, Name: pick(m, []string{"s1", "s2", "s1", "s2", "o1"})})
	case n < 16:
		namespace := pick(m, []string{w.cluster.String(), sharedNamespace})
		m.putSecret(m.service, "service", types.NamespacedName{Namespace: namespace, Name: pick(m, []string{"o1", "o2", "o1", "o2", "s1"})})
	default:
		m.administrate(pub)
	}
}

// putPrimary creates or changes a primary object.
func (m *model) putPrimary(pub *modelPublication, w *modelWorkspace, key types.NamespacedName) {
	resource := pub.config.WorkspaceResource
	o := m.get(w.client, resource, key)
	exists := o != nil
	if !exists {
		o = object(resource, key, "")
	}
	creds, out := pick(m, credNames), pick(m, outNames)
	o.Object["spec"] = map[string]any{"revision": int64(m.next), "secretName": creds, "outName": out}
	m.log("user writes %s %s/%s: revision %d, secretName %q, outName %q", resource.Resource, w.name, key.Name, m.next, creds, out)
	m.put(w.client, o, exists)
}

func (m *model) put(c client.Client, o *unstructured.Unstructured, exists bool) {
	var err error
	if exists {
		err = c.Update(context.Background(), o)
	} else {
		err = c.Create(context.Background(), o)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// putSecret creates, changes or deletes a Secret. For Secrets that an agent has created, users remove labels or replace the object.
func (m *model) putSecret(c client.Client, where string, key types.NamespacedName) {
	o := m.get(c, secrets, key)
	switch {
	case o == nil:
		o = object(secrets, key, fmt.Sprintf("data: {v: %q}", m.value()))
		m.log("%s: Secret %s is created", where, key)
		m.put(c, o, false)
	case m.made[o.GetUID()] && m.rand.IntN(2) == 0:
		m.log("%s: Secret %s is stripped", where, key)
		o.SetAnnotations(nil)
		m.stripped[o.GetUID()] = true
		m.put(c, o, true)
	case m.made[o.GetUID()]:
		m.log("%s: Secret %s is replaced", where, key)
		m.deleteIn(c, secrets, key)
		m.put(c, object(secrets, key, fmt.Sprintf("data: {v: %q}", m.value())), false)
	case m.rand.IntN(2) == 0:
		m.log("%s: Secret %s is deleted", where, key)
		m.deleteIn(c, secrets, key)
	default:
		m.log("%s: Secret %s is changed", where, key)
		o.Object["data"] = map[string]any{"v": m.value()}
		m.put(c, o, true)
	}
}

// value returns a unique value, in base64.
func (m *model) value() string { return fmt.Sprintf("%04d", m.next) }

// administrate changes a copy of a primary object as an administrator.
func (m *model) administrate(pub *modelPublication) {
	resource := pub.config.ServiceResource
	copies := m.listAll(m.service, resource)
	if len(copies) == 0 || m.rand.IntN(8) == 0 {
		o := object(resource, types.NamespacedName{Namespace: sharedNamespace, Name: pick(m, primaryKeys).Name}, "spec: {revision: 0}")
		if err := m.service.Create(context.Background(), o); err == nil {
			m.log("administrator creates %s %s", resource.Resource, o.GetName())
		} else if !apierrors.IsAlreadyExists(err) {
			m.t.Fatal(err)
		}
		return
	}
	o := pick(m, copies)
	what := ""
	switch m.rand.IntN(4) {
	case 0:
		what = "deletes"
		m.deleteIn(m.service, resource, client.ObjectKeyFromObject(&o))
	case 1:
		if o.GetDeletionTimestamp() != nil {
			return
		}
		what = "holds"
		o.SetFinalizers([]string{slowFinalizer})
		m.put(m.service, &o, true)
	case 2:
		what = "strips"
		labels := o.GetLabels()
		for key := range (Source{NamespacedName: testKey}).Labels() {
			delete(labels, key)
		}
		delete(labels, publication.LabelAgentName)
		delete(labels, publication.LabelRemoteResource)
		o.SetLabels(labels)
		o.SetAnnotations(nil)
		m.stripped[o.GetUID()] = true
		m.put(m.service, &o, true)
	default:
		what = "sets the status of"
		o.Object["status"] = map[string]any{"seen": int64(m.next)}
		if err := m.service.Status().Update(context.Background(), &o); err != nil {
			m.t.Fatal(err)
		}
	}
	m.log("administrator %s %s %s/%s", what, resource.Resource, o.GetNamespace(), o.GetName())
}

// endSlowDeletions removes the finalizers of administrators.
func (m *model) endSlowDeletions() {
	for _, resource := range []workspaces.Resource{widgetOnService, things, gizmos} {
		for _, o := range m.listAll(m.service, resource) {
			if len(o.GetFinalizers()) > 0 {
				o.SetFinalizers(nil)
				m.put(m.service, &o, true)
			}
		}
	}
}
