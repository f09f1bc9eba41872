package syncer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// placed returns the key of the copy of the test object under the default naming.
func placed(t *testing.T) types.NamespacedName {
	t.Helper()
	e := newEnv(t)
	createWidget(e)
	e.settle()
	return e.copyKey()
}

func createNamespaceOfCopies(e *env) {
	e.createIn(e.service, object(workspaces.Namespaces, types.NamespacedName{Name: testCluster.String()}, ""))
}

func TestObjectsOfOthersAreNotAdopted(t *testing.T) {
	key := placed(t)
	for name, labels := range map[string]map[string]string{
		"another source": merged(Source{testCluster, types.NamespacedName{Namespace: "team", Name: "other"}}.Labels(), map[string]string{publication.LabelAgentName: testAgent}),
		"another agent":  merged(Source{testCluster, testKey}.Labels(), map[string]string{publication.LabelAgentName: "other"}),
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			createNamespaceOfCopies(e)
			existing := object(widgetOnService, key, "spec: {size: 7}")
			existing.SetLabels(labels)
			e.createIn(e.service, existing)
			createWidget(e)
			var owned *OwnedError
			if _, err := e.sync(testKey); !errors.As(err, &owned) {
				t.Fatalf("got error %v, want an OwnedError", err)
			}
			expectField(t, e.theCopy(), 7, "spec", "size")
			if got := e.events.log[len(e.events.log)-1]; !strings.HasPrefix(got, "Warning ReconcilingError") || strings.Contains(got, key.Name) {
				t.Errorf("the last event is %q", got)
			}
			deleteWidget(e)
			e.settle()
			expectField(t, e.theCopy(), 7, "spec", "size") // the deletion is not theirs either
			if e.get(e.workspace, widgetInWorkspace, testKey) != nil {
				t.Error("the primary object is left")
			}
		})
	}
}

func TestUnlabelledObjectIsAdoptedWithItsContent(t *testing.T) {
	e := newEnv(t)
	withRelated(secretRelation(fromService, ""))(e)
	key := placed(t)
	createNamespaceOfCopies(e)
	e.createIn(e.service, object(widgetOnService, key, "spec: {size: 7, local: x, secretName: theirs}\nmetadata: {labels: {mine: yes-please}}"))
	e.createIn(e.service, object(secrets, types.NamespacedName{Namespace: key.Namespace, Name: "theirs"}, "data: {password: b25l}"))
	createWidget(e)
	e.change(e.workspace, widgetInWorkspace, testKey, setField("spec.secretName", "creds"))
	e.settle()
	for _, want := range []struct {
		value any
		path  []string
	}{
		{7, []string{"spec", "size"}}, {"x", []string{"spec", "local"}}, {"theirs", []string{"spec", "secretName"}},
		{"yes-please", []string{"metadata", "labels", "mine"}}, {testAgent, []string{"metadata", "labels", publication.LabelAgentName}},
	} {
		expectField(t, e.theCopy(), want.value, want.path...)
	}
	// References in the copy lead to the related object.
	expectField(t, e.get(e.workspace, secrets, credsInWorkspace), "b25l", "data", "password")
	e.expectIdle()

	e.change(e.workspace, widgetInWorkspace, testKey, setField("spec.size", int64(9)))
	e.settle()
	expectField(t, e.theCopy(), 9, "spec", "size")
	expectField(t, e.theCopy(), "x", "spec", "local")
	expectField(t, e.theCopy(), "theirs", "spec", "secretName")
	deleteWidget(e)
	e.settle()
	if copies := e.copies(); len(copies) > 0 {
		t.Errorf("the adopted object is left: %v", copies)
	}
}

func TestAdoptionScenarioOfAnExistingObject(t *testing.T) {
	scenario{
		steps: []func(e *env){
			func(e *env) {
				createNamespaceOfCopies(e)
				e.createIn(e.service, object(widgetOnService, placed(t), "spec: {size: 7, local: x}"))
				createWidget(e)
			},
			changeWidget(setField("spec.added", "later")),
		},
		check: func(t *testing.T, e *env) {
			expectField(t, e.theCopy(), 7, "spec", "size")
			expectField(t, e.theCopy(), "x", "spec", "local")
			expectField(t, e.theCopy(), "later", "spec", "added")
		},
	}.test(t)
}

func TestTerminatingObjectIsAwaitedAndNotAdopted(t *testing.T) {
	e := newEnv(t)
	key := placed(t)
	createNamespaceOfCopies(e)
	e.createIn(e.service, object(widgetOnService, key, "spec: {size: 7}\nmetadata: {finalizers: [example.org/slow]}"))
	e.deleteIn(e.service, widgetOnService, key)
	createWidget(e)
	for range 3 {
		if result, err := e.sync(testKey); err != nil || result.RequeueAfter != pollDelay {
			t.Fatalf("got %v, %v, want a requeue", result, err)
		}
	}
	expectField(t, e.theCopy(), 7, "spec", "size")
	changeCopy(func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })(e)
	e.settle()
	expectField(t, e.theCopy(), 3, "spec", "size")
}

func TestTerminatingCopyIsNotUpdated(t *testing.T) {
	e := newEnv(t)
	createWidget(e)
	e.settle()
	changeCopy(func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.org/slow"}) })(e)
	e.deleteIn(e.service, widgetOnService, e.copyKey())
	changeWidget(setField("spec.size", int64(8)))(e)
	e.expectIdle() // an event reports the end of the deletion, so nothing is polled
	if result, err := e.sync(testKey); err != nil || result.RequeueAfter != 0 {
		t.Errorf("got %v, %v", result, err)
	}
	changeCopy(func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })(e)
	e.settle()
	expectField(t, e.theCopy(), 8, "spec", "size")
}

func TestTwoCopiesAreAnError(t *testing.T) {
	e := newEnv(t)
	createWidget(e)
	e.settle()
	second := e.theCopy()
	second.SetName("second")
	second.SetResourceVersion("")
	e.createIn(e.service, second)
	var ambiguous *AmbiguousError
	if _, err := e.sync(testKey); !errors.As(err, &ambiguous) {
		t.Errorf("got error %v, want an AmbiguousError", err)
	}
}

// sprockets are published from the same kind of copies as widgets.
var sprockets = workspaces.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Sprocket"}, Resource: "sprockets", Namespaced: true, HasStatus: true}

// publishedAs returns an env of the same agent, workspace and service cluster for another resource of the same kind of copies.
func (e *env) publishedAs(resource workspaces.Resource) *env {
	other := *e
	other.config.WorkspaceResource = resource
	other.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{
		Naming: &syncagentv1alpha1.ResourceNaming{Name: resource.Resource + "-$remoteName"},
	}}
	return &other
}

func TestTwoResourcesOfOneServiceKind(t *testing.T) {
	e := newEnv(t)
	createWidget(e)
	e.settle()
	other := e.publishedAs(sprockets)
	e.createIn(e.workspace, object(sprockets, testKey, "spec: {size: 9}"))
	other.settle()
	sizes := func() map[string]any {
		found := map[string]any{}
		for _, copied := range e.copies() {
			found[copied.GetAnnotations()[publication.AnnotationRemoteResource]] = copied.Object["spec"].(map[string]any)["size"]
		}
		return found
	}
	if got, want := sizes(), (map[string]any{"widgets.example.org": int64(3), "sprockets.example.org": int64(9)}); len(e.copies()) != 2 || !equal(got, want) {
		t.Fatalf("got copies with sizes %v, want %v", got, want)
	}
	e.expectIdle()
	other.expectIdle()
	deleteWidget(e)
	e.settle()
	other.settle()
	if got, want := sizes(), (map[string]any{"sprockets.example.org": int64(9)}); !equal(got, want) {
		t.Errorf("got copies with sizes %v, want %v", got, want)
	}
}

func TestStatesOfPublishedSecretsAreNoCopies(t *testing.T) {
	e := newEnv(t)
	e.config.WorkspaceResource, e.config.ServiceResource = secrets, secrets
	e.config.Copies = ListedCopies{e.config.Service, secrets.GroupVersionKind, testAgent}
	e.createIn(e.workspace, object(secrets, testKey, "data: {a: YQ==}"))
	e.settle()
	e.expectIdle()
	e.deleteIn(e.workspace, secrets, testKey)
	e.settle()
	left := &corev1.SecretList{}
	if err := e.service.List(t.Context(), left); err != nil || len(left.Items) > 0 || e.get(e.workspace, secrets, testKey) != nil {
		t.Errorf("something is left (%v):\n%s", err, e.dump())
	}
}

func TestCopyThatDoesNotNameItsResourceIsLabelled(t *testing.T) {
	e := newEnv(t)
	createWidget(e)
	e.settle()
	changeCopy(func(o *unstructured.Unstructured) {
		o.SetLabels(without(o.GetLabels(), publication.LabelRemoteResource))
		o.SetAnnotations(without(o.GetAnnotations(), publication.AnnotationRemoteResource))
	})(e)
	e.writes.reset()
	e.settle()
	expectField(t, e.theCopy(), resourceHash(widgetInWorkspace), "metadata", "labels", publication.LabelRemoteResource)
	if got := len(e.writes.log); got != 1 {
		t.Errorf("got writes %v, want one", e.writes.log)
	}
	e.expectIdle()
	other := e.publishedAs(sprockets)
	if !BelongsTo(e.theCopy(), widgetInWorkspace) || BelongsTo(e.theCopy(), other.config.WorkspaceResource) {
		t.Error("the copy does not belong to its resource alone")
	}
}

func TestNamingIsDecidedOnce(t *testing.T) {
	e := newEnv(t)
	createWidget(e)
	e.settle()
	key := e.copyKey()
	e.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{
		Naming: &syncagentv1alpha1.ResourceNaming{Name: "{{ .Object.metadata.name }}", Namespace: "elsewhere"},
	}}
	changeWidget(setField("spec.size", int64(8)))(e)
	e.settle()
	if got := e.copyKey(); got != key {
		t.Errorf("the copy is %s, want %s", got, key)
	}
	changeCopy(func(o *unstructured.Unstructured) { o.SetLabels(nil) })(e)
	e.settle()
	if got := e.copyKey(); got != key {
		t.Errorf("the adopted copy is %s, want %s", got, key)
	}
	e.deleteIn(e.service, widgetOnService, key)
	e.settle()
	if got, want := e.copyKey(), (types.NamespacedName{Namespace: "elsewhere", Name: testKey.Name}); got != want {
		t.Errorf("the new copy is %s, want %s", got, want)
	}
}

func TestFilter(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	for name, filter := range map[string]*syncagentv1alpha1.ResourceFilter{
		"of objects": {Resource: selector}, "of namespaces": {Namespace: selector}, "of both": {Resource: selector, Namespace: selector},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{Filter: filter}}
			createWidget(e)
			e.expectIdle()
			label := func(value string) {
				if filter.Resource != nil {
					changeWidget(setField("metadata.labels.tier", value))(e)
				}
				if filter.Namespace != nil {
					e.change(e.workspace, workspaces.Namespaces, types.NamespacedName{Name: testKey.Namespace}, func(o *unstructured.Unstructured) {
						o.SetLabels(map[string]string{"tier": value})
					})
				}
			}
			label("gold")
			e.settle()
			e.theCopy()
			label("lead")
			e.expectIdle()
			deleteWidget(e) // the agent cleans up objects that it has accepted
			e.settle()
			expectNothingLeft(t, e)
		})
	}
}

func TestWorkspacePath(t *testing.T) {
	e := newEnv(t)
	e.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{
		EnableWorkspacePaths: true, Naming: &syncagentv1alpha1.ResourceNaming{Namespace: `{{ .ClusterPath | replace ":" "-" }}`},
	}}
	createWidget(e)
	if _, err := e.sync(testKey); err == nil || e.events.count(ReasonReconcilingError) != 1 || len(e.copies()) > 0 {
		t.Fatalf("without a path: error %v, events %v", err, e.events.log)
	}
	e.createIn(e.workspace, object(workspaces.LogicalClusters, types.NamespacedName{Name: corev1alpha1.LogicalClusterName}, "metadata: {annotations: {kcp.io/path: root:org:team}}"))
	e.settle()
	expectField(t, e.theCopy(), "root:org:team", "metadata", "annotations", publication.AnnotationWorkspacePath)
	if got := e.copyKey().Namespace; got != "root-org-team" {
		t.Errorf("the copy is in namespace %s", got)
	}
	e.expectIdle()
	e.deleteIn(e.workspace, workspaces.LogicalClusters, types.NamespacedName{Name: corev1alpha1.LogicalClusterName})
	deleteWidget(e) // the deletion does not need a path
	e.settle()
	expectNothingLeft(t, e)
}

func TestStatusNeedsTheSubresourceOnBothSides(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"not in workspaces": func(c *Config) { c.WorkspaceResource.HasStatus = false },
		"not on service":    func(c *Config) { c.ServiceResource.HasStatus = false },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			change(&e.config)
			createWidget(e)
			e.settle()
			changeCopy(setField("status", map[string]any{"phase": "Ready"}))(e)
			e.expectIdle()
		})
	}
}

func TestStatusThatTheWorkspacePrunesIsWrittenOnce(t *testing.T) {
	e := newEnv(t)
	createWidget(e)
	e.settle()
	inner := e.agentWorkspace
	e.agentWorkspace = interceptor.NewClient(inner.(client.WithWatch), interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, object client.Object, options ...client.SubResourceUpdateOption) error {
			if status, _ := object.(*unstructured.Unstructured).Object["status"].(map[string]any); status != nil {
				delete(status, "internal")
				status["completed"] = true
			}
			return c.SubResource(subresource).Update(ctx, object, options...)
		},
	})
	changeCopy(setField("status", map[string]any{"phase": "Ready", "internal": "x"}))(e)
	e.settle()
	want := map[string]any{"phase": "Ready", "completed": true}
	expectField(t, e.get(e.workspace, widgetInWorkspace, testKey), want, "status")
	e.expectIdle()
	changeWidget(setField("status", map[string]any{"phase": "Forged"}))(e)
	e.settle()
	expectField(t, e.get(e.workspace, widgetInWorkspace, testKey), want, "status")
	changeCopy(setField("status.phase", "Steady"))(e)
	e.settle()
	expectField(t, e.get(e.workspace, widgetInWorkspace, testKey), "Steady", "status", "phase")
	e.expectIdle()
}

func TestClusterScopedSourceAndCopy(t *testing.T) {
	e := newEnv(t)
	e.config.WorkspaceResource.Namespaced, e.config.ServiceResource.Namespaced = false, false
	key := types.NamespacedName{Name: strings.Repeat("n", 250)}
	e.createIn(e.workspace, object(widgetInWorkspace, key, "spec: {size: 1}"))
	e.settle(key)
	if source, ok := SourceOf(e.theCopy()); !ok || source.NamespacedName != key || e.copyKey().Namespace != "" {
		t.Errorf("the copy %s names source %v", e.copyKey(), source)
	}
	e.expectIdle(key)
	e.deleteIn(e.workspace, widgetInWorkspace, key)
	e.settle(key)
	if len(e.copies())+len(stateSecrets(e)) > 0 {
		t.Error("something is left")
	}
}

// staleCopies is a cache that has not received anything yet.
type staleCopies struct{}

func (staleCopies) Find(context.Context, Source) ([]unstructured.Unstructured, error) {
	return nil, nil
}

func TestCopyThatNoCacheHasYet(t *testing.T) {
	for name, loseState := range map[string]bool{"state is known": false, "state is lost": true} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.config.Copies = staleCopies{}
			e.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{
				Naming: &syncagentv1alpha1.ResourceNaming{Name: "{{ .Object.spec.size }}"},
			}}
			createWidget(e)
			e.settle()
			e.expectIdle()
			if !loseState {
				changeWidget(setField("spec.size", int64(4)))(e) // its name would be another one
				e.settle()
				expectField(t, e.theCopy(), 4, "spec", "size")
			} else {
				for _, name := range stateSecrets(e) {
					e.deleteIn(e.service, secrets, types.NamespacedName{Namespace: testNamespace, Name: name})
				}
			}
			deleteWidget(e)
			e.settle()
			expectNothingLeft(t, e)
		})
	}
}

func TestConflictIsRepeatedWithoutAnEvent(t *testing.T) {
	e := newEnv(t)
	createWidget(e)
	stale := e.get(e.workspace, widgetInWorkspace, testKey)
	changeWidget(setField("spec.size", int64(4)))(e)
	inner := e.agentWorkspace
	e.agentWorkspace = interceptor.NewClient(inner.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			u := object.(*unstructured.Unstructured)
			if u.GroupVersionKind() == widgetInWorkspace.GroupVersionKind {
				u.Object = stale.DeepCopy().Object
				return nil
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	if result, err := e.sync(testKey); err != nil || result.RequeueAfter != conflictDelay || len(e.events.log) > 0 {
		t.Errorf("got %v, %v, events %v", result, err, e.events.log)
	}
	e.agentWorkspace = inner
	e.settle()
	expectField(t, e.theCopy(), 4, "spec", "size")
}

func TestDeleteOrphan(t *testing.T) {
	e := newEnv(t)
	withRelated(secretRelation(syncagentv1alpha1.RelatedResourceOriginKcp, ""))(e)
	createWidget(e)
	nameSecret(e)
	createSecret(inWorkspace, "b25l")(e)
	e.settle()
	before := e.get(e.workspace, secrets, credsInWorkspace)
	done, err := New(e.config).DeleteOrphan(t.Context(), e.theCopy())
	if err != nil || !done {
		t.Fatalf("got %v, %v", done, err)
	}
	if len(e.copies())+len(stateSecrets(e)) > 0 || e.get(e.service, secrets, credsOnService) != nil {
		t.Errorf("something is left:\n%s", e.dump())
	}
	if after := e.get(e.workspace, secrets, credsInWorkspace); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Error("the workspace was written to")
	}
}

func TestForgottenSourceWithoutFinalizerStillHasItsCopyDeleted(t *testing.T) {
	e := newEnv(t)
	createWidget(e)
	e.settle()
	changeWidget(func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.org/other"}) })(e)
	deleteWidget(e)
	e.settle()
	if len(e.copies())+len(stateSecrets(e)) > 0 {
		t.Error("something is left")
	}
	if got := e.get(e.workspace, widgetInWorkspace, testKey).GetFinalizers(); !slices.Equal(got, []string{"example.org/other"}) {
		t.Errorf("the source has finalizers %v", got)
	}
}

// forbid makes the agent's client of the workspace refuse reads of a resource.
func forbid(e *env, kind string) (allow func()) {
	inner := e.agentWorkspace
	denied := func(object client.Object) error {
		if object.GetObjectKind().GroupVersionKind().Kind == kind {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "claimed"}, object.GetName(), errors.New("access denied"))
		}
		return nil
	}
	e.agentWorkspace = interceptor.NewClient(inner.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if err := denied(object); err != nil {
				return err
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	return func() { e.agentWorkspace = inner }
}
