package audit

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	stockaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// collector is an audit backend that keeps its events.
type collector struct {
	stockaudit.Backend
	events []*auditinternal.Event
}

func (c *collector) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		c.events = append(c.events, event.DeepCopy())
	}
	return true
}

func TestDeletionRecorder(t *testing.T) {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	bindings := schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apibindings"}
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	generic := &genericapiserver.Config{}
	if NewDeletionRecorder(generic) != nil {
		t.Error("there is a recorder without an audit log")
	}
	log := &collector{}
	generic.AuditBackend = log
	generic.RequestInfoResolver = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	generic.AuditPolicyRuleEvaluator = policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules: []auditinternal.PolicyRule{
			{Level: auditinternal.LevelNone, Resources: []auditinternal.GroupResources{{Resources: []string{"secrets"}}}},
			{Level: auditinternal.LevelMetadata},
		},
	})
	record := NewDeletionRecorder(generic)
	ctx := logicalcluster.With(t.Context(), logicalcluster.MustParseName("a"))
	record(ctx, configMaps, "n", "x")
	record(ctx, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "n", "hidden")
	record(ctx, bindings, "", "y")
	want := []auditinternal.ObjectReference{
		{Resource: "configmaps", Namespace: "n", Name: "x", APIVersion: "v1"},
		{Resource: "apibindings", Name: "y", APIGroup: "apis.kcp.io", APIVersion: "v1alpha2"},
	}
	for _, name := range []string{"a?b", "a#b", "a\nb", "a b", "a:b;c=d&e", "ä\x7f"} { // allowed in names of RBAC
		record(ctx, roles, "", name)
		want = append(want, auditinternal.ObjectReference{Resource: "clusterroles", Name: name, APIGroup: "rbac.authorization.k8s.io", APIVersion: "v1"})
	}
	if len(log.events) != len(want) {
		t.Fatalf("the log has %d events, want %d", len(log.events), len(want))
	}
	for i, want := range want {
		event := log.events[i]
		if event.Verb != "delete" || event.Stage != auditinternal.StageResponseComplete || event.ObjectRef == nil || *event.ObjectRef != want {
			t.Errorf("event %d: %s %s %v, want the deletion of %v", i, event.Stage, event.Verb, event.ObjectRef, want)
		}
		if event.User.Username != "system:apiserver" || event.Annotations[clusterAnnotation] != "a" || event.ResponseStatus.Code != 200 || event.AuditID == "" {
			t.Errorf("event %d: user %q, annotations %v, status %v, ID %q", i, event.User.Username, event.Annotations, event.ResponseStatus, event.AuditID)
		}
	}
}
