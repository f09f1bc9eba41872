package audit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	stockaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// recorder is a backend that describes its events.
type recorder struct {
	got        []string
	keys       []string // of the annotations
	fails      bool
	ran, ended bool
	// blocked keeps Shutdown until it is closed.
	blocked chan struct{}
}

func (r *recorder) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		r.got = append(r.got, fmt.Sprintf("%s %s %s request=%t response=%t", e.Stage, e.Verb, e.Level, e.RequestObject != nil, e.ResponseObject != nil))
		r.keys = append(r.keys, strings.Join(slices.Sorted(maps.Keys(e.Annotations)), " "))
		if e.Annotations != nil {
			e.Annotations["audit.k8s.io/truncated"] = "true" // as stock's backend does
		}
	}
	return !r.fails
}

func (r *recorder) Run(<-chan struct{}) error {
	r.ran = true
	if r.fails {
		return errors.New("failed")
	}
	return nil
}
func (r *recorder) Shutdown() {
	if r.blocked != nil {
		<-r.blocked
	}
	r.ended = true
}
func (r *recorder) String() string { return "recorder" }

func rules(omit []auditinternal.Stage, rules ...auditinternal.PolicyRule) stockaudit.PolicyRuleEvaluator {
	return policy.NewPolicyRuleEvaluator(&auditinternal.Policy{OmitStages: omit, Rules: rules})
}

func TestRouter(t *testing.T) {
	configMaps := []auditinternal.GroupResources{{Resources: []string{"configmaps"}}}
	named := []auditinternal.GroupResources{{Resources: []string{"configmaps"}, ResourceNames: []string{"c"}}}
	received, started := auditinternal.StageRequestReceived, auditinternal.StageResponseStarted
	bodies, metadata, ofAlice, selected := &recorder{}, &recorder{}, &recorder{}, &recorder{fails: true}
	router := NewRouter([]Route{
		{Backend: bodies, Policy: rules([]auditinternal.Stage{received, started}, auditinternal.PolicyRule{Level: auditinternal.LevelNone, Resources: named}, auditinternal.PolicyRule{Level: auditinternal.LevelRequestResponse, Resources: configMaps})},
		{Backend: metadata, Policy: rules([]auditinternal.Stage{started}, auditinternal.PolicyRule{Level: auditinternal.LevelMetadata})},
		{Backend: ofAlice, Policy: rules(nil, auditinternal.PolicyRule{Level: auditinternal.LevelRequest, Users: []string{"alice"}, NonResourceURLs: []string{"/a b*"}})},
		{Backend: selected, Policy: rules(nil, auditinternal.PolicyRule{Level: auditinternal.LevelMetadata}), MayFail: true, Selects: func(e *auditinternal.Event) bool { return e.Verb == "delete" }},
	})
	object := &runtime.Unknown{Raw: []byte("{}")}
	send := func(stage auditinternal.Stage, verb, name, uri string) bool {
		event := &auditinternal.Event{Level: auditinternal.LevelRequestResponse, Stage: stage, Verb: verb, RequestURI: uri, RequestObject: object, ResponseObject: object}
		event.User.Username = "alice"
		if name != "" {
			event.ObjectRef = &auditinternal.ObjectReference{Resource: "configmaps", APIVersion: "v1", Name: name}
		}
		return router.ProcessEvents(event)
	}
	complete := auditinternal.StageResponseComplete
	for _, processed := range []bool{
		send(received, "create", "c", ""), // the name comes from the body, and no rule for names applies
		send(complete, "create", "c", ""),
		send(complete, "delete", "c", ""),
		send(complete, "get", "", "/a%20b/c?d"),
	} {
		if !processed {
			t.Error("a backend that may fail fails a request")
		}
	}
	for name, test := range map[string]struct{ got, want []string }{
		"bodies": {bodies.got, []string{"ResponseComplete create RequestResponse request=true response=true"}},
		"metadata": {metadata.got, []string{
			"RequestReceived create Metadata request=false response=false", "ResponseComplete create Metadata request=false response=false",
			"ResponseComplete delete Metadata request=false response=false", "ResponseComplete get Metadata request=false response=false",
		}},
		"of alice": {ofAlice.got, []string{"ResponseComplete get Request request=true response=false"}},
		"selected": {selected.got, []string{"ResponseComplete delete Metadata request=false response=false"}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: got %q, want %q", name, test.got, test.want)
		}
	}
	metadata.fails = true
	if send(complete, "get", "", "/x") {
		t.Error("a backend that may not fail fails no request")
	}
	if err := router.Run(nil); err == nil || !bodies.ran || !metadata.ran {
		t.Errorf("got %v, want all backends to run and an error", err)
	}
	if router.Shutdown(); !bodies.ended || !selected.ended {
		t.Error("a backend has not ended")
	}
}

func TestCombinedPolicy(t *testing.T) {
	received, started := auditinternal.StageRequestReceived, auditinternal.StageResponseStarted
	router := NewRouter([]Route{
		{Policy: rules([]auditinternal.Stage{received, started}, auditinternal.PolicyRule{Level: auditinternal.LevelRequest, Verbs: []string{"create", "get"}})},
		{Policy: rules([]auditinternal.Stage{started}, auditinternal.PolicyRule{Level: auditinternal.LevelMetadata, Verbs: []string{"create", "list"}, OmitManagedFields: new(true)})},
		{Policy: rules(nil, auditinternal.PolicyRule{Level: auditinternal.LevelRequest, Verbs: []string{"update"}, OmitManagedFields: new(true)})},
	})
	for verb, want := range map[string]stockaudit.RequestAuditConfig{
		"create": {Level: auditinternal.LevelRequest, OmitStages: []auditinternal.Stage{started}},
		"update": {Level: auditinternal.LevelRequest, OmitManagedFields: true},
		"get":    {Level: auditinternal.LevelRequest, OmitStages: []auditinternal.Stage{received, started}},
		"list":   {Level: auditinternal.LevelMetadata, OmitStages: []auditinternal.Stage{started}},
		"watch":  {Level: auditinternal.LevelNone},
	} {
		got := router.EvaluatePolicyRule(authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice"}, Verb: verb})
		slices.Sort(got.OmitStages)
		slices.Sort(want.OmitStages)
		if got.Level != want.Level || got.OmitManagedFields != want.OmitManagedFields || !slices.Equal(got.OmitStages, want.OmitStages) {
			t.Errorf("%s: got %v, want %v", verb, got, want)
		}
	}
}

// TestNamespaceOfEvent sends events whose namespace a client has put into the body, which stock has in the event.
func TestNamespaceOfEvent(t *testing.T) {
	for name, test := range map[string]struct {
		uri, namespace string
		isRecorded     bool
	}{
		"a namespaced object":                          {"/api/v1/namespaces/quiet/configmaps?dryRun=All", "quiet", false},
		"one of a group":                               {"/apis/apps/v1/namespaces/quiet/deployments/d", "quiet", false},
		"a watch by path":                              {"/api/v1/watch/namespaces/quiet/configmaps", "quiet", false},
		"an escaped path":                              {"/api/v1/namespaces/qui%65t/configmaps", "quiet", false},
		"another namespace":                            {"/api/v1/namespaces/n/configmaps", "n", true},
		"a namespace in the body":                      {"/apis/rbac.authorization.k8s.io/v1/clusterroles/c", "quiet", true},
		"a namespace in the body, of a core resource":  {"/api/v1/persistentvolumes", "quiet", true},
		"an object with the name namespaces":           {"/apis/example.com/v1/widgets/namespaces/quiet", "quiet", true},
		"no namespace, where only namespaces are kept": {"/api/v1/persistentvolumes", "", true},
	} {
		got := &recorder{}
		router := NewRouter([]Route{{Backend: got, Policy: rules(nil, auditinternal.PolicyRule{Level: auditinternal.LevelNone, Namespaces: []string{"quiet"}}, auditinternal.PolicyRule{Level: auditinternal.LevelMetadata})}})
		event := &auditinternal.Event{Level: auditinternal.LevelMetadata, Stage: auditinternal.StageResponseComplete, Verb: "update", RequestURI: test.uri}
		event.ObjectRef = &auditinternal.ObjectReference{Namespace: test.namespace, Resource: "r"}
		if router.ProcessEvents(event); len(got.got) > 0 != test.isRecorded {
			t.Errorf("%s: got %q, want an event: %t", name, got.got, test.isRecorded)
		}
	}
}

func TestAnnotations(t *testing.T) {
	truncating, bodies, metadata := &recorder{}, &recorder{}, &recorder{}
	everything := func(level auditinternal.Level) stockaudit.PolicyRuleEvaluator {
		return rules(nil, auditinternal.PolicyRule{Level: level})
	}
	router := NewRouter([]Route{
		{Backend: truncating, Policy: everything(auditinternal.LevelRequest)}, {Backend: bodies, Policy: everything(auditinternal.LevelRequestResponse)}, {Backend: metadata, Policy: everything(auditinternal.LevelMetadata)},
	})
	router.ProcessEvents(&auditinternal.Event{Level: auditinternal.LevelRequestResponse, Annotations: map[string]string{"patch.webhook.admission.k8s.io/round_0_index_0": "content", "mutation.webhook.admission.k8s.io/round_0_index_0": "m"}})
	const mutation, patch = "mutation.webhook.admission.k8s.io/round_0_index_0", "patch.webhook.admission.k8s.io/round_0_index_0"
	for name, test := range map[string]struct {
		got  *recorder
		want string
	}{
		"the first with objects": {truncating, mutation + " " + patch}, "the second with objects": {bodies, mutation + " " + patch}, "metadata": {metadata, mutation},
	} {
		if !slices.Equal(test.got.keys, []string{test.want}) {
			t.Errorf("%s: got %q, want %q", name, test.got.keys, test.want)
		}
	}
}

// TestEndOfBlockedBackend ends a backend that does not: those that may fail do not keep the process.
func TestEndOfBlockedBackend(t *testing.T) {
	blocked, other := &recorder{blocked: make(chan struct{})}, &recorder{}
	router := NewRouter([]Route{{Backend: blocked, MayFail: true}, {Backend: other}})
	router.endTimeout = time.Millisecond
	router.Shutdown()
	if !other.ended {
		t.Error("a backend that may not fail has not ended")
	}
	close(blocked.blocked)
}

func TestClientAddress(t *testing.T) {
	proxied := map[string]string{"audit.kcp.io/front-proxy": "true"}
	for name, test := range map[string]struct {
		event auditinternal.Event
		want  string
	}{
		"none":                     {auditinternal.Event{}, ""},
		"a direct connection":      {auditinternal.Event{SourceIPs: []string{"192.0.2.1"}}, "192.0.2.1"},
		"a header of the client":   {auditinternal.Event{SourceIPs: []string{"203.0.113.1", "192.0.2.1"}}, "192.0.2.1"},
		"through a front proxy":    {auditinternal.Event{SourceIPs: []string{"192.0.2.1", "10.0.0.1"}, Annotations: proxied}, "192.0.2.1"},
		"a front proxy for itself": {auditinternal.Event{SourceIPs: []string{"10.0.0.1"}, Annotations: proxied}, "10.0.0.1"},
	} {
		if got := ClientAddress(&test.event); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
