package syncer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/state"
)

// previousState is the name of the state that api-syncagent has written.
var previousState = types.NamespacedName{Namespace: testNamespace, Name: "obj-state-2cluster-0123456789abcdef0123"}

var (
	mineInWorkspace = types.NamespacedName{Namespace: testKey.Namespace, Name: "mine"}
	mineOnService   = types.NamespacedName{Namespace: testCluster.String(), Name: "mine"}
)

func formerly(t *testing.T, related ...RelatedResource) *env {
	t.Helper()
	e := newEnv(t)
	leavePrevious(placed(t), related...)(e)
	return e
}

// leaveFormer creates the objects of api-syncagent for a widget with one related object of each origin: primary objects with the
// contract's metadata, copies of related objects without any, and a state of complete objects, with other keys.
func leavePrevious(copyKey types.NamespacedName, related ...RelatedResource) func(e *env) {
	return func(e *env) { e.leavePrevious(copyKey, related...) }
}

func (e *env) leavePrevious(copyKey types.NamespacedName, related ...RelatedResource) {
	if len(related) == 0 {
		related = []RelatedResource{
			relatedByReference("creds", fromService, "spec.secretName", secrets, secrets),
			relatedByReference("mine", fromWorkspace, "spec.mine", secrets, secrets),
		}
		related[0].Spec.Cleanup = true
	}
	withRelated(related...)(e)
	createNamespaceOfCopies(e)

	widget := object(widgetInWorkspace, testKey, "spec: {size: 3, secretName: creds, mine: mine}\nmetadata: {labels: {app: shop}}")
	widget.SetFinalizers([]string{publication.Finalizer})
	widget.SetAnnotations(map[string]string{
		publication.AnnotationRelatedPrefix + "creds.0": `{"namespace":"team","name":"creds","apiVersion":"v1","kind":"Secret"}`,
	})
	e.createIn(e.workspace, widget)
	copied := object(widgetOnService, copyKey, "spec: {size: 3, secretName: creds, mine: mine, defaulted: here}\nmetadata: {labels: {app: shop}}")
	source := Source{testCluster, testKey}
	copied.SetLabels(merged(copied.GetLabels(), source.Labels()))
	copied.SetLabels(merged(copied.GetLabels(), map[string]string{publication.LabelAgentName: testAgent}))
	copied.SetAnnotations(map[string]string{publication.AnnotationRemoteNamespace: testKey.Namespace, publication.AnnotationRemoteName: testKey.Name})
	e.createIn(e.service, copied)

	creds := object(secrets, credsOnService, "type: Opaque\ndata: {password: b25l}\nmetadata: {labels: {app: db}}")
	e.createIn(e.service, creds)
	copyOfCreds := object(secrets, credsInWorkspace, "type: Opaque\ndata: {password: b25l, added: eA==}\nmetadata: {labels: {app: db}}")
	e.createIn(e.workspace, copyOfCreds)
	mine := object(secrets, mineInWorkspace, "type: Opaque\ndata: {password: b25l}\nmetadata: {finalizers: [syncagent.kcp.io/cleanup]}")
	e.createIn(e.workspace, mine)
	e.createIn(e.service, object(secrets, mineOnService, "type: Opaque\ndata: {password: b25l}"))

	values := map[string]any{}
	for key, tracked := range map[string]*unstructured.Unstructured{
		"a": object(widgetInWorkspace, testKey, "spec: {size: 3, secretName: creds, mine: mine}\nmetadata: {labels: {app: shop}}"),
		"b": object(secrets, credsOnService, "type: Opaque\ndata: {password: b25l}\nmetadata: {labels: {app: db}}"),
		"c": object(secrets, mineInWorkspace, "type: Opaque\ndata: {password: b25l}"),
	} {
		encoded, err := json.Marshal(tracked.Object)
		if err != nil {
			e.t.Fatal(err)
		}
		values[expression.SHA1Hex(key)] = base64.StdEncoding.EncodeToString(encoded)
	}
	recorded := object(secrets, previousState, "")
	recorded.Object["data"] = values
	recorded.SetLabels(merged(source.Labels(), map[string]string{publication.LabelObjectState: "true"}))
	e.createIn(e.service, recorded)
}

func TestApiSyncagentIsReplaced(t *testing.T) {
	e := formerly(t)
	e.settle()
	// Fields that the service cluster has added remain, on both sides.
	expectField(t, e.theCopy(), "here", "spec", "defaulted")
	expectField(t, e.get(e.workspace, secrets, credsInWorkspace), "eA==", "data", "added")
	e.expectIdle()

	e.change(e.workspace, widgetInWorkspace, testKey, setField("spec.size", int64(5)))
	e.change(e.service, secrets, credsOnService, setField("data.password", "dHdv"))
	e.change(e.workspace, secrets, mineInWorkspace, setField("data.password", "dHdv"))
	e.settle()
	expectField(t, e.theCopy(), 5, "spec", "size")
	expectField(t, e.theCopy(), "here", "spec", "defaulted")
	expectField(t, e.get(e.workspace, secrets, credsInWorkspace), "dHdv", "data", "password")
	expectField(t, e.get(e.workspace, secrets, credsInWorkspace), "eA==", "data", "added")
	expectField(t, e.get(e.workspace, secrets, credsInWorkspace), map[string]any{"app": "db"}, "metadata", "labels")
	expectField(t, e.get(e.service, secrets, mineOnService), "dHdv", "data", "password")
	if e.get(e.service, secrets, previousState) == nil {
		t.Error("api-syncagent cannot go on: its state is gone")
	}
}

func TestWhatApiSyncagentHasMadeIsCleanedUp(t *testing.T) {
	for name, before := range map[string]func(e *env){
		"after passes":                    func(e *env) { e.settle() },
		"without a reconciliation before": func(*env) {},
	} {
		t.Run(name, func(t *testing.T) {
			e := formerly(t)
			before(e)
			deleteWidget(e)
			e.settle()
			expectNothingLeft(t, e)
			for where, found := range map[string]*unstructured.Unstructured{
				"the copy in the workspace":      e.get(e.workspace, secrets, credsInWorkspace),
				"the copy on the service":        e.get(e.service, secrets, mineOnService),
				"the state of api-syncagent":     e.get(e.service, secrets, previousState),
				"a finalizer in the workspace":   finalized(e.get(e.workspace, secrets, mineInWorkspace)),
				"the primary object":             e.get(e.workspace, widgetInWorkspace, testKey),
				"a finalizer on the other's own": finalized(e.get(e.service, secrets, credsOnService)),
			} {
				if found != nil {
					t.Errorf("%s is left", where)
				}
			}
			if e.get(e.workspace, secrets, mineInWorkspace) == nil || e.get(e.service, secrets, credsOnService) == nil {
				t.Error("an original is gone")
			}
		})
	}
}

func TestDeletionAfterTheMoveNeedsNoPath(t *testing.T) {
	e := formerly(t)
	e.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{EnableWorkspacePaths: true}} // the LogicalCluster does not exist
	deleteWidget(e)
	e.settle()
	expectNothingLeft(t, e)
	if e.get(e.workspace, widgetInWorkspace, testKey) != nil || e.get(e.service, secrets, mineOnService) != nil {
		t.Errorf("something is left:\n%s", e.dump())
	}
}

func TestTakeOverIsConfined(t *testing.T) {
	mine := relatedByReference("mine", fromWorkspace, "spec.mine", secrets, secrets)
	mine.Spec.Object.Namespace = &syncagentv1alpha1.RelatedResourceObjectSpec{Template: &syncagentv1alpha1.TemplateExpression{
		Template: `{{ if eq .Side "kcp" }}team{{ else }}{{ .Object.spec.where }}{{ end }}`,
	}}
	e := formerly(t, mine)
	victim := types.NamespacedName{Namespace: "victims", Name: mineOnService.Name}
	e.createIn(e.service, object(workspaces.Namespaces, types.NamespacedName{Name: victim.Namespace}, ""))
	e.createIn(e.service, object(secrets, victim, "data: {theirs: eA==}"))
	e.change(e.service, widgetOnService, client.ObjectKeyFromObject(e.theCopy()), setField("spec.where", victim.Namespace))
	e.change(e.workspace, widgetInWorkspace, testKey, setField("spec.where", victim.Namespace))
	_, _ = e.sync(testKey) // refuses the namespace
	deleteWidget(e)
	e.settle()
	expectNothingLeft(t, e)
	if found := e.get(e.service, secrets, victim); found == nil || len(found.GetAnnotations()) > 0 {
		t.Errorf("the Secret of others is %v", found)
	}
	if left := finalized(e.get(e.workspace, secrets, mineInWorkspace)); left != nil {
		t.Errorf("the original has the finalizers %v", left.GetFinalizers())
	}
}

// finalized returns an object that has finalizers, or nil.
func finalized(o *unstructured.Unstructured) *unstructured.Unstructured {
	if o == nil || len(o.GetFinalizers()) == 0 {
		return nil
	}
	return o
}

func TestTakeOverScenario(t *testing.T) {
	prepare := leavePrevious(placed(t))
	scenario{
		steps: []func(e *env){prepare, func(e *env) {
			e.change(e.service, secrets, credsOnService, setField("data.password", "dHdv"))
			e.change(e.workspace, secrets, mineInWorkspace, setField("data.password", "dHdv"))
		}},
		check: func(t *testing.T, e *env) {
			expectField(t, e.theCopy(), "here", "spec", "defaulted")
			expectField(t, e.get(e.workspace, secrets, credsInWorkspace), "eA==", "data", "added")
			expectField(t, e.get(e.workspace, secrets, credsInWorkspace), "dHdv", "data", "password")
			expectField(t, e.get(e.service, secrets, mineOnService), "dHdv", "data", "password")
		},
	}.test(t)
	scenario{steps: []func(e *env){prepare, deleteWidget}, check: func(t *testing.T, e *env) {
		expectNothingLeft(t, e)
		if e.get(e.service, secrets, mineOnService) != nil || e.get(e.workspace, secrets, credsInWorkspace) != nil {
			t.Error("a copy is left")
		}
	}}.test(t)
}

func TestTakeOverNeedsEvidence(t *testing.T) {
	forget := func(kept ...string) func(e *env) {
		return func(e *env) {
			e.change(e.service, secrets, previousState, func(o *unstructured.Unstructured) {
				data := o.Object["data"].(map[string]any)
				maps.DeleteFunc(data, func(key string, _ any) bool {
					return !slices.ContainsFunc(kept, func(k string) bool { return expression.SHA1Hex(k) == key })
				})
			})
		}
	}
	unannotate := func(e *env) {
		e.change(e.workspace, widgetInWorkspace, testKey, func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })
	}
	for name, test := range map[string]struct {
		change      func(e *env)
		creds, mine bool // whether they are taken over
	}{
		"all there is":  {func(*env) {}, true, true},
		"without state": {func(e *env) { e.deleteIn(e.service, secrets, previousState) }, true, false},
		"without state, of a copy that this agent has made": {func(e *env) {
			e.deleteIn(e.service, secrets, previousState)
			e.change(e.service, widgetOnService, client.ObjectKeyFromObject(e.theCopy()), func(o *unstructured.Unstructured) {
				o.SetLabels(merged(o.GetLabels(), map[string]string{publication.LabelRemoteResource: resourceHash(widgetInWorkspace)}))
			})
		}, false, false},
		"with the annotation alone":        {forget("a", "c"), true, true},
		"with the state alone":             {unannotate, true, true},
		"with neither":                     {func(e *env) { forget("a")(e); unannotate(e) }, false, false},
		"with the state of another object": {forget("b", "c"), true, false},
		"with an annotation for another copy": {func(e *env) {
			forget("a")(e)
			e.change(e.workspace, widgetInWorkspace, testKey, func(o *unstructured.Unstructured) {
				o.SetAnnotations(map[string]string{publication.AnnotationRelatedPrefix + "creds.0": `{"namespace":"team","name":"other","apiVersion":"v1","kind":"Secret"}`})
			})
		}, false, false},
		"with the state of another agent": {func(e *env) {
			e.change(e.service, secrets, previousState, func(o *unstructured.Unstructured) {
				o.SetLabels(merged(o.GetLabels(), map[string]string{publication.LabelStateAgent: "other"}))
			})
		}, true, false},
		"for a consumer who leads elsewhere": {func(e *env) {
			e.createIn(e.service, object(secrets, types.NamespacedName{Namespace: mineOnService.Namespace, Name: "theirs"}, "data: {theirs: eA==}"))
			e.createIn(e.workspace, object(secrets, types.NamespacedName{Namespace: testKey.Namespace, Name: "theirs"}, "data: {password: b25l}"))
			e.change(e.workspace, widgetInWorkspace, testKey, setField("spec.mine", "theirs"))
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := formerly(t)
			test.change(e)
			for range 8 {
				_, _ = e.sync(testKey) // an object that has not been taken over is an error each time
			}
			for key, check := range map[types.NamespacedName]struct {
				client client.Client
				want   bool
			}{credsInWorkspace: {e.workspace, test.creds}, mineOnService: {e.service, test.mine}} {
				if found := e.get(check.client, secrets, key); found != nil && (len(ownerKeys(found)) > 0) != check.want {
					t.Errorf("%s is taken over: %v, want %v\n%s", key, !check.want, check.want, e.dump())
				}
			}
			if found := e.get(e.service, secrets, types.NamespacedName{Namespace: mineOnService.Namespace, Name: "theirs"}); found != nil {
				expectField(t, found, map[string]any{"theirs": "eA=="}, "data")
			}
		})
	}
}

func TestFinalizerOfApiSyncagentOnKindsThatMayBePrimary(t *testing.T) {
	thing := relatedByReference("thing", fromWorkspace, "spec.mine", things, things)
	e := formerly(t, thing)
	o := object(things, mineInWorkspace, "spec: {x: 1}\nmetadata: {finalizers: [syncagent.kcp.io/cleanup]}")
	e.createIn(e.workspace, o)
	e.createIn(e.service, object(things, mineOnService, "spec: {x: 1}"))
	e.change(e.service, secrets, previousState, func(state *unstructured.Unstructured) {
		encoded, err := json.Marshal(object(things, mineInWorkspace, "spec: {x: 1}").Object)
		if err != nil {
			t.Fatal(err)
		}
		setField("data.d", base64.StdEncoding.EncodeToString(encoded))(state)
	})
	e.settle()
	if got := e.get(e.workspace, things, mineInWorkspace).GetFinalizers(); len(got) != 1 || got[0] == publication.Finalizer {
		t.Errorf("the object has finalizers %v, want the own one in place of that of api-syncagent", got)
	}
	e.deleteIn(e.workspace, things, mineInWorkspace)
	e.settle()
	if e.get(e.workspace, things, mineInWorkspace) != nil || e.get(e.service, things, mineOnService) != nil {
		t.Errorf("something is left:\n%s", e.dump())
	}
}

func TestPreviousStateUnderTheOwnName(t *testing.T) {
	e := formerly(t)
	previous := e.get(e.service, secrets, previousState)
	e.deleteIn(e.service, secrets, previousState)
	own := state.SecretName(state.Primary{Cluster: testCluster, GroupVersionKind: widgetInWorkspace.GroupVersionKind, NamespacedName: testKey})
	previous.SetName(own)
	previous.SetResourceVersion("")
	e.createIn(e.service, previous)
	before := slices.Collect(maps.Keys(previous.Object["data"].(map[string]any)))
	e.settle()
	data := e.get(e.service, secrets, types.NamespacedName{Namespace: testNamespace, Name: own}).Object["data"].(map[string]any)
	for _, key := range before {
		if _, left := data[key]; left {
			t.Errorf("the value %s of api-syncagent is left", key)
		}
	}
	expectField(t, e.theCopy(), "here", "spec", "defaulted")
	deleteWidget(e)
	e.settle()
	expectNothingLeft(t, e)
	if e.get(e.workspace, secrets, credsInWorkspace) != nil || e.get(e.service, secrets, mineOnService) != nil {
		t.Error("a copy is left")
	}
}

func TestNewObjectsLookForNoPreviousState(t *testing.T) {
	e := newEnv(t)
	e.config.Service = noSecretLists{e.config.Service}
	createWidget(e)
	e.settle()
	e.expectIdle()
}

// noSecretLists is a client that refuses to list Secrets.
type noSecretLists struct{ Client }

func (n noSecretLists) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*corev1.SecretList); ok {
		return errors.New("Secrets are listed")
	}
	return n.Client.List(ctx, list, options...)
}
