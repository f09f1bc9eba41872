package syncer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// expectGuarded fails unless the syncer refuses the related object, and reveals nothing about it to the consumer.
func expectGuarded(t *testing.T, e *env) {
	t.Helper()
	var guarded *GuardedError
	if _, err := e.sync(testKey); !errors.As(err, &guarded) {
		t.Fatalf("got error %v, want a GuardedError", err)
	}
	if got := e.events.log[len(e.events.log)-1]; !strings.HasPrefix(got, "Warning ReconcilingError") || strings.Contains(got, guarded.Object) || strings.Contains(got, guarded.Reason) {
		t.Errorf("the last event is %q", got)
	}
}

func TestNamespacesOfTheServiceClusterAreGuarded(t *testing.T) {
	locators := map[string]struct {
		locator *syncagentv1alpha1.RelatedResourceObjectSpec
		guarded bool
	}{
		"a field":    {&syncagentv1alpha1.RelatedResourceObjectSpec{Reference: &syncagentv1alpha1.RelatedResourceObjectReference{Path: "spec.target"}}, true},
		"a template": {&syncagentv1alpha1.RelatedResourceObjectSpec{Template: &syncagentv1alpha1.TemplateExpression{Template: "{{ .Object.spec.target }}"}}, true},
		"a constant": {nil, false},
	}
	for _, namespace := range []string{"kube-system", "kube-public", "kube-other", testNamespace} {
		for name, test := range locators {
			for _, origin := range []syncagentv1alpha1.RelatedResourceOrigin{fromWorkspace, fromService} {
				t.Run(strings.Join([]string{namespace, name, string(origin)}, " "), func(t *testing.T) {
					e := newEnv(t)
					relation := secretRelation(origin, "")
					relation.Spec.Object.Namespace = test.locator
					if test.locator == nil {
						relation.Spec.Object.Namespace = &syncagentv1alpha1.RelatedResourceObjectSpec{Reference: &syncagentv1alpha1.RelatedResourceObjectReference{
							Path: "metadata.name", Regex: &syncagentv1alpha1.RegularExpression{Replacement: namespace},
						}}
					}
					withRelated(relation)(e)
					for _, c := range []*unstructured.Unstructured{object(workspaces.Namespaces, types.NamespacedName{Name: namespace}, "")} {
						_ = e.service.Create(context.Background(), c.DeepCopy()) // the namespace of the agent exists already
						e.createIn(e.workspace, c)
					}
					createWidget(e)
					changeWidget(setField("spec.target", namespace))(e)
					nameSecret(e)
					from, to := e.workspace, e.service
					if origin == fromService {
						from, to = to, from
					}
					key := types.NamespacedName{Namespace: namespace, Name: "creds"}
					e.createIn(from, object(secrets, key, "data: {password: c2VjcmV0}"))
					if !test.guarded {
						e.settle()
						expectField(t, e.get(to, secrets, key), "c2VjcmV0", "data", "password")
						return
					}
					expectGuarded(t, e)
					if e.get(to, secrets, key) != nil || len(e.get(from, secrets, key).GetFinalizers()) > 0 {
						t.Errorf("something was written:\n%s", e.dump())
					}
				})
			}
		}
	}
}

func TestNamingIsGuarded(t *testing.T) {
	key := types.NamespacedName{Namespace: "kube-system", Name: testKey.Name}
	for naming, guarded := range map[string]bool{"$remoteNamespace": true, "{{ .Object.metadata.namespace }}": true, "kube-system": false} {
		t.Run(naming, func(t *testing.T) {
			e := newEnv(t)
			e.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{Naming: &syncagentv1alpha1.ResourceNaming{Namespace: naming}}}
			e.createIn(e.workspace, object(workspaces.Namespaces, types.NamespacedName{Name: key.Namespace}, ""))
			e.createIn(e.workspace, object(widgetInWorkspace, key, "spec: {size: 3}"))
			var refused *GuardedError
			if _, err := e.sync(key); errors.As(err, &refused) != guarded {
				t.Errorf("got error %v", err)
			}
			if got := len(e.copies()); (got == 0) != guarded {
				t.Errorf("got %d copies", got)
			}
			e.deleteIn(e.workspace, widgetInWorkspace, key)
			e.settle(key)
			if e.get(e.workspace, widgetInWorkspace, key) != nil {
				t.Error("the object cannot be deleted")
			}
		})
	}
}

func TestObjectsOfOthersAreNoOrigins(t *testing.T) {
	for name, test := range map[string]struct {
		labels  map[string]string
		guarded bool
	}{
		"a state":                      {map[string]string{publication.LabelObjectState: "true"}, true},
		"a copy for another object":    {map[string]string{ownerKeyPrefix + "other": "origin"}, true},
		"of another logical cluster":   {map[string]string{publication.LabelRemoteCluster: "other", publication.LabelRemoteNamespaceHash: expression.SHA1Hex(testKey.Namespace)}, true},
		"of another namespace":         {map[string]string{publication.LabelRemoteCluster: testCluster.String(), publication.LabelRemoteNamespaceHash: expression.SHA1Hex("other")}, true},
		"of the same namespace":        {map[string]string{publication.LabelRemoteCluster: testCluster.String(), publication.LabelRemoteNamespaceHash: expression.SHA1Hex(testKey.Namespace)}, false},
		"without a label of the agent": {map[string]string{"app": "db"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := withSecret(t, secretRelation(fromService, ""))
			e.change(e.service, secrets, credsOnService, func(o *unstructured.Unstructured) {
				o.SetLabels(test.labels)
				o.SetAnnotations(ownersIn(test.labels))
			})
			if !test.guarded {
				e.settle()
				expectField(t, e.get(e.workspace, secrets, credsInWorkspace), "b25l", "data", "password")
				return
			}
			expectGuarded(t, e)
			if e.get(e.workspace, secrets, credsInWorkspace) != nil {
				t.Error("the consumer can read it")
			}
			deleteWidget(e)
			e.settle()
			if e.get(e.service, secrets, credsOnService) == nil {
				t.Error("it has been deleted")
			}
		})
	}
}

func TestSecretsWithAMeaningForTheClusterAreGuarded(t *testing.T) {
	for _, secretType := range guardedTypes {
		for _, origin := range []syncagentv1alpha1.RelatedResourceOrigin{fromWorkspace, fromService} {
			for name, prepare := range map[string]func(e *env, relation *RelatedResource) (fields string){
				"origin": func(*env, *RelatedResource) string { return "type: " + secretType },
				"mutated": func(_ *env, relation *RelatedResource) string {
					relation.Spec.Mutation = &syncagentv1alpha1.ResourceMutationSpec{Spec: []syncagentv1alpha1.ResourceMutation{{
						Regex: &syncagentv1alpha1.ResourceRegexMutation{Path: "type", Replacement: secretType},
					}}}
					return "type: Opaque"
				},
			} {
				t.Run(strings.Join([]string{secretType, string(origin), name}, " "), func(t *testing.T) {
					e := newEnv(t)
					relation := secretRelation(origin, "")
					fields := prepare(e, &relation)
					withRelated(relation)(e)
					createWidget(e)
					nameSecret(e)
					e.settle()
					from, fromKey, to, toKey := e.workspace, credsInWorkspace, e.service, credsOnService
					if origin == fromService {
						from, fromKey, to, toKey = to, toKey, from, fromKey
					}
					e.createIn(from, object(secrets, fromKey, fields+"\ndata: {token: eA==}"))
					expectGuarded(t, e)
					if e.get(to, secrets, toKey) != nil {
						t.Error("it has been copied")
					}
				})
			}
		}
	}
}

func TestFinalizerOfPrimaryObjectsOfOtherAgentsStays(t *testing.T) {
	e := newEnv(t)
	withRelated(relatedByReference("thing", fromWorkspace, "spec.secretName", things, things))(e)
	createWidget(e)
	nameSecret(e)
	e.settle()
	thing := object(things, credsInWorkspace, "spec: {x: 1}")
	thing.SetFinalizers([]string{publication.Finalizer}) // another agent syncs it as a primary object
	e.createIn(e.workspace, thing)
	e.settle()
	deleteWidget(e)
	e.settle()
	if got := e.get(e.workspace, things, credsInWorkspace).GetFinalizers(); !slices.Equal(got, []string{publication.Finalizer}) {
		t.Errorf("the object has finalizers %v, want the one of the other agent", got)
	}
}
