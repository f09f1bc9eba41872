package syncer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

func TestAnnotationsOfRelatedObjectsFollow(t *testing.T) {
	e := newEnv(t)
	relation := relatedByReference("many", fromService, "spec.names", secrets, secrets)
	withRelated(relation)(e)
	createWidget(e)
	changeWidget(setField("spec.names", []any{"b", "a"}))(e)
	e.settle()
	for _, name := range []string{"a", "b"} {
		e.createIn(e.service, object(secrets, types.NamespacedName{Namespace: testCluster.String(), Name: name}, "data: {a: YQ==}"))
	}
	annotations := func() (names []string) {
		for key, value := range e.get(e.workspace, widgetInWorkspace, testKey).GetAnnotations() {
			if strings.HasPrefix(key, publication.AnnotationRelatedPrefix) {
				names = append(names, strings.TrimPrefix(key, publication.AnnotationRelatedPrefix)+" "+value)
			}
		}
		slices.Sort(names)
		return names
	}
	e.settle()
	if got := annotations(); len(got) != 2 || !strings.HasPrefix(got[0], `many.0 {"namespace":"team","name":"a"`) || !strings.HasPrefix(got[1], `many.1 {"namespace":"team","name":"b"`) {
		t.Errorf("got annotations %q", got)
	}
	changeWidget(setField("spec.names", []any{"b"}))(e)
	e.settle()
	if got := annotations(); len(got) != 1 || !strings.HasPrefix(got[0], `many.0 {"namespace":"team","name":"b"`) {
		t.Errorf("got annotations %q", got)
	}
	e.expectIdle()
}

func TestConfigMapIsCopiedAsSecret(t *testing.T) {
	e := newEnv(t)
	withRelated(relatedByReference("config", fromWorkspace, "spec.secretName", configMaps, secrets))(e)
	createWidget(e)
	nameSecret(e)
	e.createIn(e.workspace, object(configMaps, credsInWorkspace, "data: {text: aGVsbG8=}\nbinaryData: {raw: /w==}"))
	e.settle()
	expectField(t, e.get(e.service, secrets, credsOnService), "aGVsbG8=", "data", "text")
	expectField(t, e.get(e.service, secrets, credsOnService), "/w==", "data", "raw")
	e.expectIdle()
	e.change(e.workspace, configMaps, credsInWorkspace, setField("data.text", "in clear"))
	if _, err := e.sync(testKey); err == nil || !strings.Contains(err.Error(), `the value of key "text" is not base64`) {
		t.Errorf("got error %v, want one that names the key", err)
	}
	expectField(t, e.get(e.service, secrets, credsOnService), "aGVsbG8=", "data", "text")
}

func TestSecretIsCopiedAsConfigMap(t *testing.T) {
	e := newEnv(t)
	withRelated(relatedByReference("config", fromWorkspace, "spec.secretName", secrets, configMaps))(e)
	createWidget(e)
	nameSecret(e)
	e.createIn(e.workspace, object(secrets, credsInWorkspace, "type: Opaque\ndata: {text: aGVsbG8=}"))
	e.settle()
	expectField(t, e.get(e.service, configMaps, credsOnService), "aGVsbG8=", "data", "text")
	expectField(t, e.get(e.service, configMaps, credsOnService), nil, "type")
	e.expectIdle()
}

func TestImmutableCopyIsReplaced(t *testing.T) {
	e := newEnv(t)
	withRelated(relatedByReference("config", fromService, "spec.secretName", configMaps, configMaps))(e)
	createWidget(e)
	nameSecret(e)
	e.settle()
	e.createIn(e.service, object(configMaps, credsOnService, "immutable: true\ndata: {a: x}"))
	e.settle()
	before := e.get(e.workspace, configMaps, credsInWorkspace).GetUID()
	e.deleteIn(e.service, configMaps, credsOnService)
	e.createIn(e.service, object(configMaps, credsOnService, "immutable: true\ndata: {a: other}"))
	e.settle()
	after := e.get(e.workspace, configMaps, credsInWorkspace)
	expectField(t, after, "other", "data", "a")
	if after.GetUID() == before {
		t.Error("the copy was changed, which a server refuses")
	}
}

func TestImmutableCopyWithStringData(t *testing.T) {
	e := newEnv(t)
	relation := secretRelation(fromService, "")
	relation.Spec.Mutation = &syncagentv1alpha1.ResourceMutationSpec{Spec: []syncagentv1alpha1.ResourceMutation{{
		Template: &syncagentv1alpha1.ResourceTemplateMutation{Path: "stringData.url", Template: "https://db"},
	}}}
	withRelated(relation)(e)
	createWidget(e)
	nameSecret(e)
	e.settle()
	e.createIn(e.service, object(secrets, credsOnService, "immutable: true\ndata: {a: YQ==}"))
	e.settle()
	e.change(e.workspace, secrets, credsInWorkspace, func(o *unstructured.Unstructured) { // as a server does
		delete(o.Object, "stringData")
		setField("data.url", "aHR0cHM6Ly9kYg==")(o)
	})
	e.expectIdle()
	before := e.get(e.workspace, secrets, credsInWorkspace).GetUID()
	e.change(e.service, secrets, credsOnService, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"added": "yes"}) })
	e.settle()
	after := e.get(e.workspace, secrets, credsInWorkspace)
	expectField(t, after, "yes", "metadata", "labels", "added")
	if after.GetUID() != before {
		t.Error("the copy has been replaced for a label")
	}
}

func TestLargeRelatedObjectsFitIntoTheState(t *testing.T) {
	e := newEnv(t)
	relation := relatedByReference("large", fromService, "", configMaps, configMaps)
	relation.Spec.Object = syncagentv1alpha1.RelatedResourceObject{RelatedResourceObjectSpec: syncagentv1alpha1.RelatedResourceObjectSpec{
		Selector: &syncagentv1alpha1.RelatedResourceObjectSelector{
			LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"large": "yes"}},
			Rewrite:       syncagentv1alpha1.RelatedResourceSelectorRewrite{Template: &syncagentv1alpha1.TemplateExpression{Template: "{{ .Value }}"}},
		},
	}}
	withRelated(relation)(e)
	createWidget(e)
	e.settle()
	for i := range 3 {
		large := object(configMaps, types.NamespacedName{Namespace: testCluster.String(), Name: fmt.Sprint("large-", i)}, "")
		large.SetLabels(map[string]string{"large": "yes"})
		large.Object["data"] = map[string]any{"text": strings.Repeat(fmt.Sprint(i), 900<<10)}
		e.createIn(e.service, large)
	}
	e.settle()
	e.expectIdle()
	size := 0
	for _, name := range stateSecrets(e) {
		for _, value := range e.get(e.service, secrets, types.NamespacedName{Namespace: testNamespace, Name: name}).Object["data"].(map[string]any) {
			size += len(value.(string)) * 3 / 4
		}
	}
	if size == 0 || size > 1<<20 {
		t.Errorf("the state has %d bytes", size)
	}
	e.change(e.service, configMaps, types.NamespacedName{Namespace: testCluster.String(), Name: "large-0"}, setField("data.text", "small"))
	e.settle()
	expectField(t, e.get(e.workspace, configMaps, types.NamespacedName{Namespace: testKey.Namespace, Name: "large-0"}), "small", "data", "text")
}
