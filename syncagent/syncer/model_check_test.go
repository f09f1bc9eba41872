package syncer

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/state"
)

// write executes a write of an agent, and checks that the agent is allowed to send it.
func (m *modelReconciliation) write(where string, c client.WithWatch, what string, o client.Object, do func() error) error {
	resource := workspaces.Resource{GroupVersionKind: gvkOf(o)}
	key := client.ObjectKeyFromObject(o)
	before := m.get(c, resource, key)
	err := do()
	if err != nil {
		m.log("%s: %s: %v", m, what, err)
		return err
	}
	m.log("%s: %s", m, what)
	m.written++
	after := m.get(c, resource, key)
	switch {
	case before == nil:
		m.made[o.GetUID()] = true
	case strings.HasPrefix(what, "delete "):
		m.checkDelete(what, before)
	case after != nil && m.made[before.GetUID()]:
	case after != nil && resource.GroupVersionKind == m.publication.config.ServiceResource.GroupVersionKind && where == "service":
		if before.GetLabels()[publication.LabelAgentName] != "" {
			m.violation("%s: %s: is not theirs", m, what)
		}
		m.made[before.GetUID()], m.adopted[before.GetUID()] = true, true
	case after != nil && !equal(before.Object["data"], after.Object["data"]):
		m.violation("%s: %s: changes the content of what it has not made", m, what)
	}
	return nil
}

// checkDelete checks that an agent created the deleted object, and that no other agent created it for another object.
func (m *modelReconciliation) checkDelete(what string, deleted *unstructured.Unstructured) {
	if !m.made[deleted.GetUID()] {
		m.violation("%s: %s: no agent has made it", m, what)
	}
	config, labels, annotations := m.publication.config, deleted.GetLabels(), deleted.GetAnnotations()
	switch {
	case labels[publication.LabelObjectState] != "":
		if own := state.SecretName(m.primary()); deleted.GetName() != own {
			m.violation("%s: %s: its own state is %s", m, what, own)
		}
	case deleted.GroupVersionKind() == config.ServiceResource.GroupVersionKind:
		if agent := labels[publication.LabelAgentName]; agent != config.AgentName && agent != "" {
			m.violation("%s: %s: it is a copy of agent %s", m, what, agent)
		}
		if !BelongsTo(deleted, config.WorkspaceResource) {
			m.violation("%s: %s: it is the copy of an object of another resource", m, what)
		}
		if source := m.get(m.key.workspace.client, config.WorkspaceResource, m.key.NamespacedName); source != nil && source.GetDeletionTimestamp() == nil && len(source.GetFinalizers()) > 0 && source.GetUID() == m.uid() {
			m.violation("%s: %s: its source lives", m, what)
		}
	default:
		own := m.syncerReconciliation().ownerKey()
		for key := range annotations {
			if strings.HasPrefix(key, ownerKeyPrefix) && key != own {
				m.violation("%s: %s: it is also a copy for %s", m, what, key)
			}
		}
	}
}

// uid returns the UID of the primary object of the reconciliation.
func (m *modelReconciliation) uid() types.UID {
	if cached := m.publication.primaries[m.key]; cached != nil {
		return cached.GetUID()
	}
	return ""
}

func (m *modelReconciliation) primary() state.Primary {
	return state.Primary{
		Cluster: m.key.workspace.cluster, GroupVersionKind: m.publication.config.WorkspaceResource.GroupVersionKind, NamespacedName: m.key.NamespacedName,
	}
}

func (m *modelReconciliation) syncerReconciliation() *reconciliation {
	return &reconciliation{Syncer: New(m.publication.config), request: Request{Cluster: m.key.workspace.cluster, NamespacedName: m.key.NamespacedName}}
}

// expectations are the objects and finalizers that the existing primary objects need.
type expectations struct {
	sources    map[string]bool // "agent cluster/namespace/name" by kind of the copy
	states     map[string]bool
	owners     map[string]bool // owner labels
	finalizers map[string]bool // "workspace secret finalizer"
}

func (e expectations) allowFinalizer(p *modelReconciliation, secret string) {
	e.finalizers[p.key.workspace.name+" "+secret+" "+p.syncerReconciliation().relatedFinalizer()] = true
}

// check checks the settled state.
func (m *model) check() {
	expected := expectations{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, pub := range m.publications {
		m.refresh(pub)
		for _, w := range pub.workspaces {
			for _, key := range primaryKeys {
				if primary := m.get(w.client, pub.config.WorkspaceResource, key); primary != nil {
					m.checkPrimary(&modelReconciliation{model: m, publication: pub, key: modelKey{w, key}}, primary, expected)
				}
			}
		}
	}
	m.checkService(expected)
	for _, w := range m.workspaces {
		m.checkWorkspace(w, expected)
	}
}

func sourceID(agent, kind, resource string, source Source) string {
	return fmt.Sprintf("%s %s %s %s/%s", agent, kind, resource, source.Cluster, source.NamespacedName)
}

// checkPrimary checks a primary object and the objects that belong to it.
func (m *model) checkPrimary(p *modelReconciliation, primary *unstructured.Unstructured, expected expectations) {
	config := p.publication.config
	source := Source{p.key.workspace.cluster, p.key.NamespacedName}
	expected.sources[sourceID(config.AgentName, config.ServiceResource.Kind, resourceName(config.WorkspaceResource), source)] = true
	expected.states[config.Namespace+"/"+state.SecretName(p.primary())] = true
	expected.owners[p.syncerReconciliation().ownerKey()] = true
	creds, _, _ := unstructured.NestedString(primary.Object, "spec", "secretName")
	expected.allowFinalizer(p, creds)
	if primary.GetDeletionTimestamp() != nil {
		m.violation("%s: is being deleted, with finalizers %v", p, primary.GetFinalizers())
		return
	}
	name, err := p.syncerReconciliation2(primary).nameCopy()
	if err != nil {
		m.violation("%s: %v", p, err)
		return
	}
	copied := m.get(m.service, config.ServiceResource, name)
	if copied == nil {
		m.violation("%s: has no copy", p)
		return
	}
	if s, ok := SourceOf(copied); !ok || s != source || !BelongsTo(copied, config.WorkspaceResource) || copied.GetLabels()[publication.LabelAgentName] != config.AgentName {
		// Another object has the name; checkService checks that its source exists. Objects that have been synced before remain.
		for _, name := range credNames {
			expected.allowFinalizer(p, name.(string))
		}
		return
	}
	// The content of an adopted object does not change.
	written := !m.adopted[copied.GetUID()] && !m.stripped[copied.GetUID()]
	if written && !equal(contentOf(copied)["spec"], contentOf(primary)["spec"]) {
		m.violation("%s: the copy has %v, the object %v", p, copied.Object["spec"], primary.Object["spec"])
	}
	if !equal(copied.Object["status"], primary.Object["status"]) {
		m.violation("%s: the copy has status %v, the object %v", p, copied.Object["status"], primary.Object["status"])
	}
	m.checkRelated(p, primary, copied)
}

// checkRelated checks the copies of related objects, unless another owner has the name.
func (m *model) checkRelated(p *modelReconciliation, primary, copied *unstructured.Unstructured) {
	for _, relation := range []struct {
		field            string
		from, to         client.Client
		named, copyNamed *unstructured.Unstructured
	}{
		{"secretName", p.key.workspace.client, m.service, primary, copied},
		{"outName", m.service, p.key.workspace.client, copied, primary},
	} {
		name, _, _ := unstructured.NestedString(relation.named.Object, "spec", relation.field)
		copyName, _, _ := unstructured.NestedString(relation.copyNamed.Object, "spec", relation.field)
		if name == "" || copyName == "" {
			continue
		}
		origin := m.get(relation.from, secrets, types.NamespacedName{Namespace: relation.named.GetNamespace(), Name: name})
		if origin == nil {
			continue
		}
		target := m.get(relation.to, secrets, types.NamespacedName{Namespace: relation.copyNamed.GetNamespace(), Name: copyName})
		switch {
		case target == nil:
			m.violation("%s: %s %s has no copy", p, relation.field, name)
		case target.GetAnnotations()[p.syncerReconciliation().ownerKey()] == "":
			if m.made[target.GetUID()] && !m.stripped[target.GetUID()] && !hasOwner(target) {
				m.violation("%s: %s %s: the copy has no owner", p, relation.field, name)
			}
		case !equal(target.Object["data"], origin.Object["data"]):
			m.violation("%s: %s %s: the copy has %v, the origin %v", p, relation.field, name, target.Object["data"], origin.Object["data"])
		}
	}
}

func hasOwner(o *unstructured.Unstructured) bool {
	for key := range o.GetAnnotations() {
		if strings.HasPrefix(key, ownerKeyPrefix) {
			return true
		}
	}
	return false
}

// syncerPass2 returns a reconciliation over a primary object that has already been read.
func (m *modelReconciliation) syncerReconciliation2(primary *unstructured.Unstructured) *reconciliation {
	result := m.syncerReconciliation()
	result.source = primary
	return result
}

// checkService checks that the service cluster has no objects of deleted primary objects.
func (m *model) checkService(expected expectations) {
	for _, resource := range []workspaces.Resource{widgetOnService, things, gizmos} {
		for _, o := range m.listAll(m.service, resource) {
			source, ok := SourceOf(&o)
			switch {
			case ok && !expected.sources[sourceID(o.GetLabels()[publication.LabelAgentName], o.GetKind(), o.GetAnnotations()[publication.AnnotationRemoteResource], source)]:
				m.violation("%s %s/%s: its source %v is gone", o.GetKind(), o.GetNamespace(), o.GetName(), source)
			case !ok && m.made[o.GetUID()] && !m.stripped[o.GetUID()]:
				m.violation("%s %s/%s: names no source", o.GetKind(), o.GetNamespace(), o.GetName())
			}
		}
	}
	for _, o := range m.listAll(m.service, secrets) {
		if o.GetLabels()[publication.LabelObjectState] != "" {
			if !expected.states[o.GetNamespace()+"/"+o.GetName()] {
				m.violation("state %s/%s: is left", o.GetNamespace(), o.GetName())
			}
			continue
		}
		m.checkSecret("service", &o, expected)
	}
}

func (m *model) checkWorkspace(w *modelWorkspace, expected expectations) {
	for _, o := range m.listAll(w.client, secrets) {
		m.checkSecret(w.name, &o, expected)
		related := slices.ContainsFunc(o.GetFinalizers(), func(f string) bool { return strings.Contains(f, relatedFinalizerInfix) })
		for _, finalizer := range o.GetFinalizers() {
			if finalizer == publication.Finalizer && related {
				continue
			}
			if !expected.finalizers[w.name+" "+o.GetName()+" "+finalizer] {
				m.violation("Secret %s/%s: finalizer %s is left", w.name, o.GetName(), finalizer)
			}
		}
	}
}

// checkSecret checks that a Secret that an agent has created is needed.
func (m *model) checkSecret(where string, o *unstructured.Unstructured, expected expectations) {
	if o.GetDeletionTimestamp() != nil {
		m.violation("Secret %s %s/%s: is being deleted, with finalizers %v", where, o.GetNamespace(), o.GetName(), o.GetFinalizers())
	}
	for key := range o.GetAnnotations() {
		if strings.HasPrefix(key, ownerKeyPrefix) && !expected.owners[key] && (m.policyDeletes() || where == "service") {
			m.violation("Secret %s %s/%s: %s is gone", where, o.GetNamespace(), o.GetName(), key)
		}
	}
	if m.made[o.GetUID()] && !hasOwner(o) && !m.stripped[o.GetUID()] {
		m.violation("Secret %s %s/%s: has no owner", where, o.GetNamespace(), o.GetName())
	}
}

func (m *model) policyDeletes() bool {
	return m.publications[0].config.Related[1].Spec.CleanupPolicy != ""
}
