package syncer

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

const widgetFields = `
metadata:
  labels: {app: shop, syncagent.kcp.io/agent-name: leaked}
  annotations: {note: hello, kcp.io/cluster: 2cluster, syncagent.kcp.io/x: leaked}
spec:
  size: 3
  ratio: 0.5
  nested: {a: one, b: two}
  list: [x, z]
`

func createWidget(e *env) { e.createIn(e.workspace, object(widgetInWorkspace, testKey, widgetFields)) }

func changeWidget(changes ...func(o *unstructured.Unstructured)) func(e *env) {
	return func(e *env) {
		e.change(e.workspace, widgetInWorkspace, testKey, func(o *unstructured.Unstructured) {
			for _, change := range changes {
				change(o)
			}
		})
	}
}

func changeCopy(changes ...func(o *unstructured.Unstructured)) func(e *env) {
	return func(e *env) {
		e.change(e.service, widgetOnService, e.copyKey(), func(o *unstructured.Unstructured) {
			for _, change := range changes {
				change(o)
			}
		})
	}
}

func deleteWidget(e *env) { e.deleteIn(e.workspace, widgetInWorkspace, testKey) }

func removeField(path ...string) func(o *unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, path...) }
}

// expectNothingLeft fails if the service cluster has objects of the agent other than its namespaces.
func expectNothingLeft(t *testing.T, e *env) {
	t.Helper()
	if got := len(e.copies()); got != 0 {
		t.Errorf("got %d copies, want none", got)
	}
	for _, name := range stateSecrets(e) {
		t.Errorf("Secret %s is left", name)
	}
	if widget := e.get(e.workspace, widgetInWorkspace, testKey); widget != nil {
		t.Errorf("the primary object is left with finalizers %v", widget.GetFinalizers())
	}
}

func stateSecrets(e *env) (names []string) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(secrets.GroupVersion().WithKind("SecretList"))
	if err := e.service.List(e.t.Context(), list); err != nil {
		e.t.Fatal(err)
	}
	for _, item := range list.Items {
		if item.GetLabels()[publication.LabelObjectState] == "true" {
			names = append(names, item.GetName())
		}
	}
	return names
}

func expectField(t *testing.T, o *unstructured.Unstructured, want any, path ...string) {
	t.Helper()
	got, found, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	if want == nil && found && got != nil || want != nil && !equal(got, want) {
		t.Errorf("%s %v is %v, want %v", o.GetKind(), path, got, want)
	}
}

func TestCreateScenario(t *testing.T) {
	scenario{
		steps: []func(e *env){createWidget},
		check: func(t *testing.T, e *env) {
			copied := e.theCopy()
			source, ok := SourceOf(copied)
			if want := (Source{testCluster, testKey}); !ok || source != want {
				t.Errorf("the copy names source %v, want %v", source, want)
			}
			expectField(t, copied, map[string]any{"size": 3, "ratio": 0.5, "nested": map[string]any{"a": "one", "b": "two"}, "list": []any{"x", "z"}}, "spec")
			expectField(t, copied, testAgent, "metadata", "labels", publication.LabelAgentName)
			expectField(t, copied, "shop", "metadata", "labels", "app")
			expectField(t, copied, "hello", "metadata", "annotations", "note")
			expectField(t, copied, nil, "metadata", "annotations", "kcp.io/cluster")
			expectField(t, copied, nil, "metadata", "annotations", "syncagent.kcp.io/x")
			namespace := e.get(e.service, workspaces.Namespaces, types.NamespacedName{Name: copied.GetNamespace()})
			expectField(t, namespace, testAgent, "metadata", "labels", publication.LabelAgentName)
			widget := e.get(e.workspace, widgetInWorkspace, testKey)
			if got := widget.GetFinalizers(); !slices.Equal(got, []string{publication.Finalizer}) {
				t.Errorf("the source has finalizers %v", got)
			}
			if got := len(stateSecrets(e)); got != 1 {
				t.Errorf("got %d states, want 1", got)
			}
		},
		expected: []string{ReasonAccepted, ReasonPlaced},
	}.test(t)
}

func TestUpdateScenario(t *testing.T) {
	scenario{
		steps: []func(e *env){
			createWidget,
			changeCopy(setField("spec.size", int64(30)), setField("spec.defaulted", "by a webhook"), setField("metadata.labels.local", "yes")),
			changeWidget(setField("spec.nested.a", "changed"), removeField("spec", "nested", "b"), removeField("metadata", "annotations", "note"), setField("spec.list", []any{"y"})),
			changeWidget(setField("spec.ratio", 1.0)),
		},
		check: func(t *testing.T, e *env) {
			expectField(t, e.theCopy(), map[string]any{
				"size": 30, "defaulted": "by a webhook", "nested": map[string]any{"a": "changed"}, "list": []any{"y"}, "ratio": 1,
			}, "spec")
			expectField(t, e.theCopy(), nil, "metadata", "annotations", "note")
			expectField(t, e.theCopy(), "yes", "metadata", "labels", "local")
		},
		expected: []string{ReasonSynced},
	}.test(t)
}

func TestSourceWinsScenario(t *testing.T) {
	scenario{
		steps: []func(e *env){
			createWidget, changeCopy(setField("spec.size", int64(30))), changeWidget(setField("spec.size", int64(4))),
		},
		check: func(t *testing.T, e *env) { expectField(t, e.theCopy(), 4, "spec", "size") },
	}.test(t)
}

func TestStatusScenario(t *testing.T) {
	scenario{
		steps: []func(e *env){
			createWidget,
			changeCopy(setField("status", map[string]any{"phase": "Ready", "count": int64(1)})),
			changeWidget(setField("status", map[string]any{"phase": "Forged"})),
			changeCopy(setField("status.phase", "Steady")),
		},
		check: func(t *testing.T, e *env) {
			expectField(t, e.get(e.workspace, widgetInWorkspace, testKey), map[string]any{"phase": "Steady", "count": 1}, "status")
		},
		expected: []string{ReasonStatusSynced},
	}.test(t)
}

func TestStatusIsClearedScenario(t *testing.T) {
	scenario{
		steps: []func(e *env){
			createWidget, changeCopy(setField("status", map[string]any{"phase": "Ready"})), changeCopy(removeField("status")),
		},
		check: func(t *testing.T, e *env) {
			expectField(t, e.get(e.workspace, widgetInWorkspace, testKey), nil, "status")
		},
	}.test(t)
}

func TestDeletionScenario(t *testing.T) {
	scenario{
		steps: []func(e *env){createWidget, deleteWidget}, hasty: true,
		check: expectNothingLeft, expected: []string{ReasonCleanup, ReasonDeleted},
	}.test(t)
}

func TestDeletionWaitsForTheFinalizersOfTheCopyScenario(t *testing.T) {
	scenario{
		steps: []func(e *env){
			createWidget,
			changeCopy(func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.org/slow"}) }),
			deleteWidget,
			func(e *env) {
				if e.theCopy().GetDeletionTimestamp() == nil {
					e.t.Error("the copy is not being deleted")
				}
				if e.get(e.workspace, widgetInWorkspace, testKey) == nil {
					e.t.Error("the primary object is gone before its copy")
				}
			},
			changeCopy(func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }),
		},
		check: expectNothingLeft,
	}.test(t)
}

func TestAdoptionScenario(t *testing.T) {
	stripped := func(e *env) {
		changeCopy(func(o *unstructured.Unstructured) { o.SetLabels(nil); o.SetAnnotations(nil) })(e)
	}
	scenario{
		steps: []func(e *env){createWidget, stripped, changeWidget(setField("spec.size", int64(9)))},
		check: func(t *testing.T, e *env) {
			if source, ok := SourceOf(e.theCopy()); !ok || source.NamespacedName != testKey {
				t.Errorf("the copy names source %v", source)
			}
			expectField(t, e.theCopy(), 9, "spec", "size")
			expectField(t, e.theCopy(), nil, "metadata", "labels", "app") // it is content, which somebody has changed
		},
	}.test(t)
	scenario{ // the source changes before the next reconciliation
		steps: []func(e *env){createWidget, func(e *env) { stripped(e); changeWidget(setField("spec.size", int64(9)))(e) }},
		check: func(t *testing.T, e *env) { expectField(t, e.theCopy(), 9, "spec", "size") },
	}.test(t)
	scenario{steps: []func(e *env){createWidget, stripped, deleteWidget}, check: expectNothingLeft}.test(t)
	scenario{
		steps: []func(e *env){createWidget, func(e *env) { stripped(e); deleteWidget(e) }}, check: expectNothingLeft,
	}.test(t)
}

func TestLostStateScenario(t *testing.T) {
	lose := func(e *env) {
		for _, name := range stateSecrets(e) {
			e.deleteIn(e.service, secrets, types.NamespacedName{Namespace: testNamespace, Name: name})
		}
	}
	corrupt := func(e *env) {
		for _, name := range stateSecrets(e) {
			e.change(e.service, secrets, types.NamespacedName{Namespace: testNamespace, Name: name}, func(o *unstructured.Unstructured) {
				for key := range o.Object["data"].(map[string]any) {
					setField("data."+key, "e30K")(o) // not what was written
				}
			})
		}
	}
	edited := changeCopy(setField("spec.size", int64(8)), removeField("metadata", "annotations", publication.AnnotationRemoteName))
	for name, damage := range map[string]func(e *env){"lost": lose, "corrupt": corrupt} {
		t.Run(name, func(t *testing.T) {
			scenario{
				steps: []func(e *env){createWidget, func(e *env) { damage(e); edited(e) }},
				check: func(t *testing.T, e *env) {
					if name == "lost" {
						expectField(t, e.theCopy(), 3, "spec", "size")
					}
					expectField(t, e.theCopy(), testKey.Name, "metadata", "annotations", publication.AnnotationRemoteName)
				},
			}.test(t)
			scenario{steps: []func(e *env){createWidget, func(e *env) { damage(e); deleteWidget(e) }}, check: expectNothingLeft}.test(t)
		})
	}
}

func TestCopyDeletedByItsAdministratorScenario(t *testing.T) {
	remove := func(e *env) { e.deleteIn(e.service, widgetOnService, e.copyKey()) }
	scenario{
		steps: []func(e *env){createWidget, remove, changeWidget(setField("spec.size", int64(5)))},
		check: func(t *testing.T, e *env) { expectField(t, e.theCopy(), 5, "spec", "size") },
	}.test(t)
	scenario{steps: []func(e *env){createWidget, func(e *env) { remove(e); deleteWidget(e) }}, check: expectNothingLeft}.test(t)
}

func createSecret(side func(e *env) (string, string), value string) func(e *env) {
	return func(e *env) {
		namespace, where := side(e)
		c := e.workspace
		if where == "service" {
			c = e.service
		}
		e.createIn(c, object(secrets, types.NamespacedName{Namespace: namespace, Name: "creds"},
			"type: Opaque\ndata: {password: "+value+"}\nmetadata: {labels: {app: db, syncagent.kcp.io/agent-name: leaked}}"))
	}
}

func inWorkspace(*env) (string, string) { return testKey.Namespace, "workspace" }
func onService(e *env) (string, string) { return e.theCopy().GetNamespace(), "service" }

func withRelated(related ...RelatedResource) func(e *env) {
	return func(e *env) { e.config.Related = related }
}

func secretRelation(origin syncagentv1alpha1.RelatedResourceOrigin, policy syncagentv1alpha1.RelatedResourceCleanupPolicy) RelatedResource {
	r := relatedByReference("creds", origin, "spec.secretName", secrets, secrets)
	r.Spec.CleanupPolicy = policy
	return r
}

var (
	credsInWorkspace = types.NamespacedName{Namespace: testKey.Namespace, Name: "creds"}
	credsOnService   = types.NamespacedName{Namespace: testCluster.String(), Name: "creds"}
	nameSecret       = changeWidget(setField("spec.secretName", "creds"))
)

func TestRelatedFromServiceScenario(t *testing.T) {
	for policy, left := range map[syncagentv1alpha1.RelatedResourceCleanupPolicy]struct{ origin, primary bool }{
		"":                              {true, true},
		syncagentv1alpha1.CleanupOrphan: {true, true},
		syncagentv1alpha1.CleanupOnPrimaryDeletion: {true, false},
		syncagentv1alpha1.CleanupMatchOrigin:       {false, false},
	} {
		t.Run("policy "+string(policy), func(t *testing.T) {
			steps := []func(e *env){createWidget, nameSecret, createSecret(onService, "b25l")}
			prepare := withRelated(secretRelation(syncagentv1alpha1.RelatedResourceOriginService, policy))
			from := len(steps) // a policy affects deletions only
			if policy == "" {
				from = 0
			}
			scenario{
				prepare: prepare, from: from,
				steps: append(slices.Clone(steps), func(e *env) {
					e.change(e.service, secrets, credsOnService, setField("data.password", "dHdv"))
				}),
				check: func(t *testing.T, e *env) {
					copied := e.get(e.workspace, secrets, credsInWorkspace)
					expectField(t, copied, "dHdv", "data", "password")
					expectField(t, copied, map[string]any{"app": "db"}, "metadata", "labels") // exactly those of the original
					if len(copied.GetFinalizers()) > 0 || len(copied.GetAnnotations()) != 1 || len(ownerKeys(copied)) != 1 {
						t.Errorf("the related copy has metadata %v", copied.Object["metadata"])
					}
					expectField(t, e.get(e.workspace, widgetInWorkspace, testKey), `{"namespace":"team","name":"creds","apiVersion":"v1","kind":"Secret"}`,
						"metadata", "annotations", "related-resources.syncagent.kcp.io/creds.0")
				},
			}.test(t)
			scenario{
				prepare: prepare, from: len(steps),
				steps: append(slices.Clone(steps), func(e *env) { e.deleteIn(e.service, secrets, credsOnService) }),
				check: func(t *testing.T, e *env) {
					if got := e.get(e.workspace, secrets, credsInWorkspace) != nil; got != left.origin {
						t.Errorf("the copy is left: %v, want %v", got, left.origin)
					}
				},
			}.test(t)
			scenario{
				prepare: prepare, from: len(steps),
				steps: append(slices.Clone(steps), deleteWidget),
				check: func(t *testing.T, e *env) {
					expectNothingLeft(t, e)
					if got := e.get(e.workspace, secrets, credsInWorkspace) != nil; got != left.primary {
						t.Errorf("the copy is left: %v, want %v", got, left.primary)
					}
					if e.get(e.service, secrets, credsOnService) == nil {
						t.Error("the origin is gone")
					}
				},
			}.test(t)
		})
	}
}

func TestRelatedFromWorkspaceScenario(t *testing.T) {
	prepare := withRelated(secretRelation(syncagentv1alpha1.RelatedResourceOriginKcp, ""))
	steps := []func(e *env){createWidget, nameSecret, createSecret(inWorkspace, "b25l")}
	expectReleased := func(t *testing.T, e *env, origin bool) {
		t.Helper()
		if e.get(e.service, secrets, credsOnService) != nil {
			t.Error("the copy is left")
		}
		found := e.get(e.workspace, secrets, credsInWorkspace)
		if (found != nil) != origin {
			t.Fatalf("the origin is left: %v, want %v", found != nil, origin)
		}
		if found != nil && len(found.GetFinalizers()) > 0 {
			t.Errorf("the origin is left with finalizers %v", found.GetFinalizers())
		}
	}
	t.Run("changed", func(t *testing.T) {
		scenario{
			prepare: prepare,
			steps: append(slices.Clone(steps), func(e *env) {
				e.change(e.workspace, secrets, credsInWorkspace, setField("data.password", "dHdv"))
			}),
			check: func(t *testing.T, e *env) {
				expectField(t, e.get(e.service, secrets, credsOnService), "dHdv", "data", "password")
				if got := e.get(e.workspace, secrets, credsInWorkspace).GetFinalizers(); len(got) != 2 || got[1] != publication.Finalizer {
					t.Errorf("the origin has finalizers %v, want its own and the contract's", got)
				}
			},
		}.test(t)
	})
	t.Run("origin deleted", func(t *testing.T) {
		scenario{
			prepare: prepare,
			steps:   append(slices.Clone(steps), func(e *env) { e.deleteIn(e.workspace, secrets, credsInWorkspace) }),
			hasty:   true,
			check:   func(t *testing.T, e *env) { expectReleased(t, e, false) },
		}.test(t)
	})
	t.Run("primary deleted", func(t *testing.T) {
		scenario{
			prepare: prepare, steps: append(slices.Clone(steps), deleteWidget), hasty: true,
			check: func(t *testing.T, e *env) { expectNothingLeft(t, e); expectReleased(t, e, true) },
		}.test(t)
	})
	t.Run("reference changed", func(t *testing.T) {
		scenario{
			prepare: prepare, steps: append(slices.Clone(steps), changeWidget(setField("spec.secretName", "other"))), hasty: true,
			check: func(t *testing.T, e *env) { expectReleased(t, e, true) },
		}.test(t)
	})
	t.Run("no longer published", func(t *testing.T) {
		scenario{
			prepare: prepare, steps: append(slices.Clone(steps), withRelated()),
			check: func(t *testing.T, e *env) { expectReleased(t, e, true) },
		}.test(t)
	})
	t.Run("copy deleted by an administrator, then the primary", func(t *testing.T) {
		scenario{
			prepare: prepare,
			steps: append(slices.Clone(steps), func(e *env) {
				e.deleteIn(e.service, widgetOnService, e.copyKey())
				deleteWidget(e)
			}),
			check: func(t *testing.T, e *env) { expectNothingLeft(t, e); expectReleased(t, e, true) },
		}.test(t)
	})
}
