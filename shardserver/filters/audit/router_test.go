package audit

import (
	"errors"
	"fmt"
	"slices"
	"testing"

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
	fails      bool
	ran, ended bool
}

func (r *recorder) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		r.got = append(r.got, fmt.Sprintf("%s %s %s request=%t response=%t", e.Stage, e.Verb, e.Level, e.RequestObject != nil, e.ResponseObject != nil))
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
func (r *recorder) Shutdown()      { r.ended = true }
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
	})
	for verb, want := range map[string]stockaudit.RequestAuditConfig{
		"create": {Level: auditinternal.LevelRequest, OmitStages: []auditinternal.Stage{started}, OmitManagedFields: true},
		"get":    {Level: auditinternal.LevelRequest, OmitStages: []auditinternal.Stage{received, started}},
		"list":   {Level: auditinternal.LevelMetadata, OmitStages: []auditinternal.Stage{started}, OmitManagedFields: true},
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
