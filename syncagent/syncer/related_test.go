package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

const (
	fromWorkspace = syncagentv1alpha1.RelatedResourceOriginKcp
	fromService   = syncagentv1alpha1.RelatedResourceOriginService
)

// withSecret prepares an env with a synced widget that references a Secret on the side of the origin.
func withSecret(t *testing.T, relation RelatedResource) *env {
	t.Helper()
	e := newEnv(t)
	withRelated(relation)(e)
	createWidget(e)
	nameSecret(e)
	e.settle()
	if relation.Spec.Origin == fromWorkspace {
		createSecret(inWorkspace, "b25l")(e)
	} else {
		createSecret(onService, "b25l")(e)
	}
	return e
}

func TestClaimThatIsNotAcceptedConcernsRelatedObjectsOnly(t *testing.T) {
	for _, origin := range []syncagentv1alpha1.RelatedResourceOrigin{fromWorkspace, fromService} {
		t.Run(string(origin), func(t *testing.T) {
			e := withSecret(t, secretRelation(origin, syncagentv1alpha1.CleanupOnPrimaryDeletion))
			allow := forbid(e, "Secret")
			changeWidget(setField("spec.size", int64(6)))(e)
			_, err := e.sync(testKey)
			if !IsClaimNotAccepted(err) {
				t.Fatalf("got error %v", err)
			}
			expectField(t, e.theCopy(), 6, "spec", "size")
			if got := e.events.log[len(e.events.log)-1]; !strings.Contains(got, "permission claim for secrets") {
				t.Errorf("the last event is %q", got)
			}
			allow()
			e.settle()
			if e.get(e.workspace, secrets, credsInWorkspace) == nil || e.get(e.service, secrets, credsOnService) == nil {
				t.Error("the related object is not synced when the claim is accepted")
			}
			forbid(e, "Secret")
			deleteWidget(e)
			e.settle()
			expectNothingLeft(t, e)
			if left := e.get(e.service, secrets, credsOnService) != nil; left != (origin == fromService) {
				t.Errorf("the Secret is left on the service cluster: %v", left)
			}
		})
	}
	t.Run("nothing was ever synced", func(t *testing.T) {
		e := newEnv(t)
		forbid(e, "Secret")
		withRelated(secretRelation(fromWorkspace, ""))(e)
		createWidget(e)
		nameSecret(e)
		_, _ = e.sync(testKey)
		deleteWidget(e)
		e.settle()
		expectNothingLeft(t, e)
	})
}

func TestUnrelatedObjectIsNeitherOverwrittenNorDeleted(t *testing.T) {
	for _, origin := range []syncagentv1alpha1.RelatedResourceOrigin{fromWorkspace, fromService} {
		for name, data := range map[string]string{"another content": "bWluZQ==", "the same content": "b25l"} {
			t.Run(string(origin)+" "+name, func(t *testing.T) {
				e := withSecret(t, secretRelation(origin, syncagentv1alpha1.CleanupOnPrimaryDeletion))
				c, key := e.workspace, credsInWorkspace
				if origin == fromWorkspace {
					c, key = e.service, credsOnService
				}
				e.createIn(c, object(secrets, key, "type: Opaque\ndata: {password: "+data+"}"))
				var owned *OwnedError
				if _, err := e.sync(testKey); !errors.As(err, &owned) || strings.Contains(err.Error(), data) {
					t.Fatalf("got error %v, want an OwnedError", err)
				}
				deleteWidget(e)
				e.settle()
				expectNothingLeft(t, e)
				expectField(t, e.get(c, secrets, key), data, "data", "password")
			})
		}
	}
}

func TestObjectThatTheClaimHides(t *testing.T) {
	e := withSecret(t, secretRelation(fromService, ""))
	e.createIn(e.workspace, object(secrets, credsInWorkspace, "data: {password: bWluZQ==}"))
	e.agentWorkspace = interceptor.NewClient(e.agentWorkspace.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if gvkOf(object).GroupKind() == secretKind {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	var owned *OwnedError
	if result, err := e.sync(testKey); !errors.As(err, &owned) || result.RequeueAfter > 0 {
		t.Errorf("got %v, %v, want an OwnedError", result, err)
	}
}

func TestStatusThatCannotBeWrittenHoldsUpNoRelatedObject(t *testing.T) {
	e := withSecret(t, secretRelation(fromService, ""))
	changeCopy(setField("status", map[string]any{"phase": "Ready"}))(e)
	e.agentWorkspace = interceptor.NewClient(e.agentWorkspace.(client.WithWatch), interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return apierrors.NewInternalError(errDisturbed)
		},
	})
	if _, err := e.sync(testKey); !apierrors.IsInternalError(err) {
		t.Errorf("got error %v", err)
	}
	expectField(t, e.get(e.workspace, secrets, credsInWorkspace), "b25l", "data", "password")
}

func TestRelatedObjectIsReleasedWhileTheCopyIsBeingDeleted(t *testing.T) {
	e := withSecret(t, secretRelation(fromWorkspace, ""))
	e.settle()
	changeCopy(func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.org/slow"}) })(e)
	e.deleteIn(e.service, widgetOnService, e.copyKey())
	e.deleteIn(e.workspace, secrets, credsInWorkspace)
	e.settle()
	if e.get(e.workspace, secrets, credsInWorkspace) != nil {
		t.Error("the Secret of the user is left")
	}
	if e.theCopy().GetDeletionTimestamp() == nil {
		t.Error("the copy is not being deleted any more")
	}
}

func TestRecordOfRelatedObjectsDoesNotGrow(t *testing.T) {
	for policy, want := range map[syncagentv1alpha1.RelatedResourceCleanupPolicy]int{
		syncagentv1alpha1.CleanupOrphan: 1, syncagentv1alpha1.CleanupOnPrimaryDeletion: 3,
	} {
		t.Run(string(policy), func(t *testing.T) {
			e := newEnv(t)
			withRelated(secretRelation(fromService, policy))(e)
			createWidget(e)
			e.settle()
			recorded := func() int {
				p := &reconciliation{Syncer: New(e.config), request: Request{Cluster: testCluster, NamespacedName: testKey}}
				if err := p.loadState(t.Context()); err != nil {
					t.Fatal(err)
				}
				entries, _ := p.state.Related()
				return len(entries)
			}
			for _, name := range []string{"one", "two", "three"} {
				e.createIn(e.service, object(secrets, types.NamespacedName{Namespace: testCluster.String(), Name: name}, "data: {a: YQ==}"))
				changeWidget(setField("spec.secretName", name))(e)
				e.settle()
			}
			if got := recorded(); got != want {
				t.Errorf("%d related objects are recorded, want %d", got, want)
			}
			for _, name := range []string{"one", "two"} { // there is nothing to be cleaned up any more
				e.deleteIn(e.workspace, secrets, types.NamespacedName{Namespace: testKey.Namespace, Name: name})
			}
			e.settle()
			if got := recorded(); got != 1 {
				t.Errorf("%d related objects are recorded at the end, want its own and that of the contract", got)
			}
			e.expectIdle()
		})
	}
}

func TestAnnotationsLostInTheWorkspaceAreRepaired(t *testing.T) {
	e := withSecret(t, secretRelation(fromService, ""))
	e.settle()
	want := ownerKeys(e.get(e.workspace, secrets, credsInWorkspace))
	e.change(e.workspace, secrets, credsInWorkspace, func(o *unstructured.Unstructured) {
		o.SetAnnotations(nil)
		setField("data.added", "eA==")(o)
	})
	e.settle()
	got := e.get(e.workspace, secrets, credsInWorkspace)
	if len(want) != 1 || !slices.Equal(ownerKeys(got), want) {
		t.Errorf("got annotations %v, want %v", ownerKeys(got), want)
	}
	expectField(t, got, "eA==", "data", "added") // changes of other fields stay
}

// ownerKeys returns the keys of the annotations of a copy that name primary objects.
func ownerKeys(copied *unstructured.Unstructured) []string {
	return slices.Sorted(maps.Keys(ownersIn(copied.GetAnnotations())))
}

func TestLabelOfTheOwnerBecomesAnAnnotation(t *testing.T) {
	e := withSecret(t, secretRelation(fromService, syncagentv1alpha1.CleanupOnPrimaryDeletion))
	e.settle()
	want := e.get(e.workspace, secrets, credsInWorkspace)
	e.change(e.workspace, secrets, credsInWorkspace, func(o *unstructured.Unstructured) {
		o.SetLabels(merged(o.GetLabels(), ownersIn(o.GetAnnotations())))
		o.SetAnnotations(nil)
	})
	for _, name := range stateSecrets(e) { // without the states, the labels are the only evidence
		e.deleteIn(e.service, secrets, types.NamespacedName{Namespace: testNamespace, Name: name})
	}
	e.settle()
	got := e.get(e.workspace, secrets, credsInWorkspace)
	if !maps.Equal(got.GetLabels(), want.GetLabels()) || !maps.Equal(got.GetAnnotations(), want.GetAnnotations()) {
		t.Errorf("got labels %v and annotations %v, want %v and %v", got.GetLabels(), got.GetAnnotations(), want.GetLabels(), want.GetAnnotations())
	}
	if want := map[string]string{"app": "db"}; !maps.Equal(got.GetLabels(), want) {
		t.Errorf("got labels %v, want those of the original, %v", got.GetLabels(), want)
	}
	deleteWidget(e)
	e.settle()
	if e.get(e.workspace, secrets, credsInWorkspace) != nil {
		t.Error("the copy is left")
	}
}

// secondKey is another primary object of the workspace.
var secondKey = types.NamespacedName{Namespace: testKey.Namespace, Name: "second"}

func withSecondWidget(e *env) {
	e.createIn(e.workspace, object(widgetInWorkspace, secondKey, "spec: {secretName: creds}"))
	e.settle(testKey, secondKey)
}

func TestTwoPrimaryObjectsShareAnOriginInTheWorkspace(t *testing.T) {
	e := withSecret(t, secretRelation(fromWorkspace, ""))
	withSecondWidget(e)
	if got := e.get(e.workspace, secrets, credsInWorkspace).GetFinalizers(); len(got) != 3 {
		t.Fatalf("the origin has finalizers %v, want that of each and that of the contract", got)
	}
	deleteWidget(e)
	e.settle(testKey, secondKey)
	if got := e.get(e.workspace, secrets, credsInWorkspace).GetFinalizers(); len(got) != 2 {
		t.Errorf("the origin has finalizers %v, want one", got)
	}
	copied := e.get(e.service, secrets, credsOnService)
	if copied == nil || len(ownerKeys(copied)) != 1 {
		t.Fatalf("the copy that the second needs is %v", copied)
	}
	e.deleteIn(e.workspace, widgetInWorkspace, secondKey)
	e.settle(testKey, secondKey)
	if e.get(e.service, secrets, credsOnService) != nil || len(e.get(e.workspace, secrets, credsInWorkspace).GetFinalizers()) > 0 {
		t.Errorf("something is left:\n%s", e.dump())
	}
}

func TestTwoPrimaryObjectsShareACopyInTheWorkspace(t *testing.T) {
	e := withSecret(t, secretRelation(fromService, syncagentv1alpha1.CleanupOnPrimaryDeletion))
	withSecondWidget(e)
	deleteWidget(e)
	e.settle(testKey, secondKey)
	if e.get(e.workspace, secrets, credsInWorkspace) == nil {
		t.Fatal("the copy that the second needs is gone")
	}
	e.deleteIn(e.workspace, widgetInWorkspace, secondKey)
	e.settle(testKey, secondKey)
	if e.get(e.workspace, secrets, credsInWorkspace) != nil {
		t.Error("the copy is left")
	}
}

func TestTwoAgentsShareAnOrigin(t *testing.T) {
	first := withSecret(t, secretRelation(fromWorkspace, ""))
	first.settle()
	second := newEnv(t) // another service cluster, and the same workspace
	second.workspace, second.agentWorkspace = first.workspace, second.count("workspace", first.workspace)
	second.config.AgentName = "other-agent"
	second.config.Copies = ListedCopies{second.config.Service, widgetOnService.GroupVersionKind, "other-agent"}
	withRelated(secretRelation(fromWorkspace, ""))(second)
	second.settle()
	e := func() []string { return first.get(first.workspace, secrets, credsInWorkspace).GetFinalizers() }
	if got := e(); len(got) != 3 {
		t.Fatalf("the origin has finalizers %v, want that of each and that of the contract", got)
	}
	first.expectIdle()
	second.expectIdle()
	first.deleteIn(first.workspace, secrets, credsInWorkspace)
	first.settle()
	if got := e(); len(got) != 2 || got[0] != publication.Finalizer || !strings.HasPrefix(got[1], "other-agent.syncagent.kcp.io/cleanup-") {
		t.Errorf("the origin has finalizers %v, want that of the second agent", got)
	}
	second.settle()
	if first.get(first.workspace, secrets, credsInWorkspace) != nil {
		t.Error("the origin is left")
	}
}

func TestFinalizerOfOlderAgentsIsRemoved(t *testing.T) {
	for name, deleteIt := range map[string]func(e *env){
		"with the primary object": deleteWidget,
		"with the origin":         func(e *env) { e.deleteIn(e.workspace, secrets, credsInWorkspace) },
	} {
		t.Run(name, func(t *testing.T) {
			e := withSecret(t, secretRelation(fromWorkspace, ""))
			e.change(e.workspace, secrets, credsInWorkspace, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{publication.Finalizer}) })
			e.settle()
			deleteIt(e)
			e.settle()
			if origin := e.get(e.workspace, secrets, credsInWorkspace); origin != nil && len(origin.GetFinalizers()) > 0 {
				t.Errorf("the origin has finalizers %v", origin.GetFinalizers())
			}
		})
	}
	t.Run("before the first reconciliation", func(t *testing.T) {
		e := withSecret(t, secretRelation(fromWorkspace, ""))
		e.change(e.workspace, secrets, credsInWorkspace, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{publication.Finalizer}) })
		e.deleteIn(e.workspace, secrets, credsInWorkspace)
		e.settle()
		if e.get(e.workspace, secrets, credsInWorkspace) != nil {
			t.Error("the origin is left")
		}
	})
}

func TestStateOfRelatedObjectsIsLost(t *testing.T) {
	lose := func(e *env) {
		for _, name := range stateSecrets(e) {
			e.deleteIn(e.service, secrets, types.NamespacedName{Namespace: testNamespace, Name: name})
		}
	}
	for name, deleteIt := range map[string]func(e *env){
		"then the primary object is deleted": deleteWidget,
		"then the origin is deleted":         func(e *env) { e.deleteIn(e.workspace, secrets, credsInWorkspace) },
	} {
		t.Run(name, func(t *testing.T) {
			e := withSecret(t, secretRelation(fromWorkspace, ""))
			e.settle()
			lose(e)
			deleteIt(e)
			e.settle()
			if e.get(e.service, secrets, credsOnService) != nil {
				t.Error("the copy is left")
			}
			if origin := e.get(e.workspace, secrets, credsInWorkspace); origin != nil && len(origin.GetFinalizers()) > 0 {
				t.Errorf("the origin has finalizers %v", origin.GetFinalizers())
			}
		})
	}
}

func TestStatusOfRelatedObjects(t *testing.T) {
	for _, origin := range []syncagentv1alpha1.RelatedResourceOrigin{fromWorkspace, fromService} {
		for _, syncStatus := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %v", origin, syncStatus), func(t *testing.T) {
				e := newEnv(t)
				relation := relatedByReference("thing", origin, "spec.secretName", things, things)
				relation.Spec.SyncStatus = syncStatus
				withRelated(relation)(e)
				createWidget(e)
				nameSecret(e)
				e.settle()
				from, fromKey, to, toKey := e.workspace, credsInWorkspace, e.service, credsOnService
				if origin == fromService {
					from, fromKey, to, toKey = to, toKey, from, fromKey
				}
				e.createIn(from, object(things, fromKey, "spec: {x: 1}\nstatus: {phase: Ready}"))
				e.settle()
				var want any
				if syncStatus {
					want = map[string]any{"phase": "Ready"}
				}
				expectField(t, e.get(to, things, toKey), want, "status")
				e.change(to, things, toKey, setField("status", map[string]any{"phase": "Forged"}))
				e.settle()
				expectField(t, e.get(from, things, fromKey), map[string]any{"phase": "Ready"}, "status")
				e.expectIdle()
			})
		}
	}
	t.Run("without the subresource", func(t *testing.T) {
		e := newEnv(t)
		relation := relatedByReference("thing", fromService, "spec.secretName", things, things)
		relation.Spec.SyncStatus, relation.Copy.HasStatus = true, false
		withRelated(relation)(e)
		createWidget(e)
		nameSecret(e)
		e.settle()
		e.createIn(e.service, object(things, credsOnService, "spec: {x: 1}\nstatus: {phase: Ready}"))
		e.settle()
		if got := e.events.count(ReasonStatusSubresourceMissing); got != 1 {
			t.Errorf("got %d events, want one", got)
		}
		e.expectIdle()
	})
}

func TestNamespacesOfRelatedObjectsAreCreated(t *testing.T) {
	for _, origin := range []syncagentv1alpha1.RelatedResourceOrigin{fromWorkspace, fromService} {
		t.Run(string(origin), func(t *testing.T) {
			e := newEnv(t)
			relation := secretRelation(origin, "")
			relation.Spec.Object.Namespace = &syncagentv1alpha1.RelatedResourceObjectSpec{Template: &syncagentv1alpha1.TemplateExpression{Template: "new-{{ .Side }}"}}
			withRelated(relation)(e)
			createWidget(e)
			nameSecret(e)
			e.settle()
			from, to, side := e.workspace, e.service, "service"
			if origin == fromService {
				from, to, side = to, from, "kcp"
			}
			other := map[string]string{"service": "kcp", "kcp": "service"}[side]
			e.createIn(from, object(workspaces.Namespaces, types.NamespacedName{Name: "new-" + other}, ""))
			e.createIn(from, object(secrets, types.NamespacedName{Namespace: "new-" + other, Name: "creds"}, "data: {a: YQ==}"))
			e.settle()
			if e.get(to, secrets, types.NamespacedName{Namespace: "new-" + side, Name: "creds"}) == nil {
				t.Errorf("no copy:\n%s", e.dump())
			}
			labels := e.get(to, workspaces.Namespaces, types.NamespacedName{Name: "new-" + side}).GetLabels()
			if labelled := len(labels) > 0; labelled != (side == "service") {
				t.Errorf("the namespace has labels %v", labels)
			}
		})
	}
}

func TestOneRelatedObjectThatFailsHoldsUpNoOther(t *testing.T) {
	e := newEnv(t)
	relation := relatedByReference("many", fromService, "spec.names", secrets, secrets)
	relation.Spec.Object.Reference.Path = "spec.names.#.name"
	broken := relatedByReference("broken", fromService, "spec", secrets, secrets)
	withRelated(broken, relation)(e)
	createWidget(e)
	changeWidget(setField("spec.names", []any{map[string]any{"name": "a"}, map[string]any{"name": ""}, map[string]any{"name": "b"}, map[string]any{"name": "c"}}))(e)
	_, _ = e.sync(testKey)
	for _, name := range []string{"a", "b", "c"} {
		e.createIn(e.service, object(secrets, types.NamespacedName{Namespace: testCluster.String(), Name: name}, "data: {a: YQ==}"))
	}
	e.createIn(e.workspace, object(secrets, types.NamespacedName{Namespace: testKey.Namespace, Name: "b"}, "data: {mine: YQ==}"))
	if _, err := e.sync(testKey); err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{"a", "c"} {
		if e.get(e.workspace, secrets, types.NamespacedName{Namespace: testKey.Namespace, Name: name}) == nil {
			t.Errorf("Secret %s is missing", name)
		}
	}
}

func TestOriginIsReleasedThoughThePrimaryObjectCannotBeSynced(t *testing.T) {
	for name, obstruct := range map[string]func(e *env){
		"two copies": func(e *env) {
			second := e.theCopy()
			second.SetName("second")
			second.SetResourceVersion("")
			e.createIn(e.service, second)
		},
		"no path": func(e *env) {
			e.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{EnableWorkspacePaths: true}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := withSecret(t, secretRelation(fromWorkspace, ""))
			e.settle()
			obstruct(e)
			e.deleteIn(e.workspace, secrets, credsInWorkspace)
			for range 3 {
				if _, err := e.sync(testKey); err == nil {
					t.Fatal("the primary object was synced")
				}
			}
			if e.get(e.workspace, secrets, credsInWorkspace) != nil || e.get(e.service, secrets, credsOnService) != nil {
				t.Error("the origin or its copy is left")
			}
		})
	}
}
