package syncer

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// allow sets the annotations of the PublishedResource that allow locations.
func allow(t *testing.T, e *env, annotations map[string]string) {
	t.Helper()
	allowed, errs := publication.ParseAllowed(&metav1.ObjectMeta{Annotations: annotations})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	p := *e.config.Publication
	p.Allowed = allowed
	e.config.Publication = &p
}

func byReference(path string, regex *syncagentv1alpha1.RegularExpression) *syncagentv1alpha1.RelatedResourceObjectSpec {
	return &syncagentv1alpha1.RelatedResourceObjectSpec{Reference: &syncagentv1alpha1.RelatedResourceObjectReference{Path: path, Regex: regex}}
}

func byTemplate(text string) *syncagentv1alpha1.RelatedResourceObjectSpec {
	return &syncagentv1alpha1.RelatedResourceObjectSpec{Template: &syncagentv1alpha1.TemplateExpression{Template: text}}
}

// toService is a locator that returns the consumer's namespace on one side, and another namespace on the service cluster.
func toService(expression string) *syncagentv1alpha1.RelatedResourceObjectSpec {
	return byTemplate(`{{ if eq .Side "kcp" }}` + testKey.Namespace + `{{ else }}` + expression + `{{ end }}`)
}

func bySelector(rewrite syncagentv1alpha1.RelatedResourceSelectorRewrite) *syncagentv1alpha1.RelatedResourceObjectSpec {
	return &syncagentv1alpha1.RelatedResourceObjectSpec{Selector: &syncagentv1alpha1.RelatedResourceObjectSelector{
		LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"team": "yes"}}, Rewrite: rewrite,
	}}
}

const otherTenant = "3cluster"

func TestWritesAreConfinedToTheNamespaceOfTheCopy(t *testing.T) {
	home := testCluster.String()
	field := toService("{{ .Object.spec.target }}")
	for name, test := range map[string]struct {
		locator *syncagentv1alpha1.RelatedResourceObjectSpec
		target  string
		allowed string
		refused bool
	}{
		"a field with the namespace of the copy":       {field, home, "", false},
		"a field with that of another tenant":          {field, otherTenant, "", true},
		"a field with one that does not exist":         {field, "made-up", "", true},
		"a field with one of the cluster":              {field, "kube-system", "", true},
		"a field with that of the agent":               {field, testNamespace, "", true},
		"a constant":                                   {toService("shared"), "shared", "", false},
		"a constant of the cluster":                    {toService("kube-system"), "kube-system", "", false},
		"the name of the logical cluster with a text":  {toService("{{ .ClusterName }}-data"), home + "-data", "", false},
		"a condition on a field":                       {toService(`{{ if .Object.spec.target }}` + otherTenant + `{{ end }}`), otherTenant, "", true},
		"a name":                                       {toService("{{ .Object.metadata.labels.target }}"), otherTenant, "", true},
		"one that is allowed":                          {field, "shared", "other,shared", false},
		"one that is not among those that are allowed": {field, otherTenant, "other,shared", true},
		"a prefix that is allowed":                     {field, "data-one", "data-*", false},
		"a prefix that is not":                         {field, "database", "data-*", true},
		"the prefix of the logical cluster":            {field, home + "-one", "$remoteClusterName-*", false},
		"the prefix of another logical cluster":        {field, otherTenant + "-one", "$remoteClusterName-*", true},
		"one of the cluster that is allowed by name":   {field, "kube-system", "kube-system", false},
		"one of the cluster below a prefix":            {field, "kube-system", "k*,kube-*", true},
		"that of the agent below a prefix":             {field, testNamespace, "agent*", true},
		"that of the agent by name":                    {field, testNamespace, testNamespace, false},
		"a selector with the name as it is": {bySelector(syncagentv1alpha1.RelatedResourceSelectorRewrite{
			Template: &syncagentv1alpha1.TemplateExpression{Template: "{{ .Value }}"},
		}), testKey.Namespace, "", true},
		"a selector with a field": {bySelector(syncagentv1alpha1.RelatedResourceSelectorRewrite{
			Template: &syncagentv1alpha1.TemplateExpression{Template: "{{ .RemoteObject.spec.target }}"},
		}), otherTenant, "", true},
		"a selector with one namespace for all": {bySelector(syncagentv1alpha1.RelatedResourceSelectorRewrite{
			Regex: &syncagentv1alpha1.RegularExpression{Replacement: "shared"},
		}), "shared", "", false},
		"a reference to a field of both sides": {byReference("spec.target", nil), testKey.Namespace, "", true},
		"a reference that is rewritten": {byReference("spec.target", &syncagentv1alpha1.RegularExpression{
			Pattern: "^(.*)$", Replacement: "$1",
		}), testKey.Namespace, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			relation := secretRelation(fromWorkspace, "")
			relation.Spec.Object.Namespace = test.locator
			withRelated(relation)(e)
			if test.allowed != "" {
				allow(t, e, map[string]string{publication.AnnotationAllowedNamespaces: test.allowed})
			}
			for _, namespace := range []string{otherTenant, "kube-system"} {
				e.createIn(e.service, object(workspaces.Namespaces, types.NamespacedName{Name: namespace}, ""))
			}
			e.change(e.workspace, workspaces.Namespaces, types.NamespacedName{Name: testKey.Namespace}, func(o *unstructured.Unstructured) {
				o.SetLabels(map[string]string{"team": "yes"})
			})
			createWidget(e)
			changeWidget(setField("spec.target", test.target), func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"target": test.target}) })(e)
			nameSecret(e)
			e.createIn(e.workspace, object(secrets, credsInWorkspace, "data: {password: c2VjcmV0}"))
			key := types.NamespacedName{Namespace: test.target, Name: "creds"}
			if !test.refused {
				e.settle()
				expectField(t, e.get(e.service, secrets, key), "c2VjcmV0", "data", "password")
				deleteWidget(e)
				e.settle()
				if e.get(e.service, secrets, key) != nil {
					t.Error("the copy is left")
				}
				return
			}
			expectGuarded(t, e)
			if e.get(e.service, secrets, key) != nil || len(e.get(e.workspace, secrets, credsInWorkspace).GetFinalizers()) > 0 {
				t.Errorf("something was written:\n%s", e.dump())
			}
			if test.target == "made-up" && e.get(e.service, workspaces.Namespaces, types.NamespacedName{Name: test.target}) != nil {
				t.Error("the namespace was created")
			}
			deleteWidget(e)
			e.settle()
			expectNothingLeft(t, e)
		})
	}
}

func TestWritesOfClusterScopedObjectsAreConfined(t *testing.T) {
	clusterThings := things
	clusterThings.Namespaced = false
	for name, test := range map[string]struct {
		locator       syncagentv1alpha1.RelatedResourceObjectSpec
		copy, allowed string
		refused       bool
	}{
		"a field":                                {*byReference("spec.secretName", nil), "creds", "", true},
		"a field with a prefix":                  {*byTemplate(`{{ if eq .Side "service" }}tenant-{{ end }}{{ .Object.spec.secretName }}`), "tenant-creds", "", true},
		"a constant":                             {*byTemplate("creds"), "creds", "", false},
		"the logical cluster":                    {*byTemplate(`{{ if eq .Side "service" }}{{ .ClusterName }}-{{ end }}creds`), testCluster.String() + "-creds", "", false},
		"a field that is allowed":                {*byReference("spec.secretName", nil), "creds", "creds", false},
		"a prefix that is allowed":               {*byTemplate(`{{ if eq .Side "service" }}{{ .ClusterName }}-{{ end }}{{ .Object.spec.secretName }}`), testCluster.String() + "-creds", "$remoteClusterName-*", false},
		"a name that is not among those allowed": {*byReference("spec.secretName", nil), "creds", "other,cred", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			relation := relatedByReference("thing", fromWorkspace, "", things, clusterThings)
			relation.Spec.Object.RelatedResourceObjectSpec = test.locator
			withRelated(relation)(e)
			if test.allowed != "" {
				allow(t, e, map[string]string{publication.AnnotationAllowedClusterScopedNames: test.allowed})
			}
			createWidget(e)
			nameSecret(e)
			e.createIn(e.workspace, object(things, credsInWorkspace, "spec: {a: b}"))
			key := types.NamespacedName{Name: test.copy}
			if !test.refused {
				e.settle()
				expectField(t, e.get(e.service, clusterThings, key), "b", "spec", "a")
			} else {
				expectGuarded(t, e)
				if e.get(e.service, clusterThings, key) != nil || len(e.get(e.workspace, things, credsInWorkspace).GetFinalizers()) > 0 {
					t.Errorf("something was written:\n%s", e.dump())
				}
			}
			deleteWidget(e)
			e.settle()
			expectNothingLeft(t, e)
			if e.get(e.service, clusterThings, key) != nil {
				t.Error("the copy is left")
			}
		})
	}
}

// withForeignCopy prepares an env in which a namespace that was allowed contains the copy of a Secret.
func withForeignCopy(t *testing.T) (*env, types.NamespacedName) {
	e := newEnv(t)
	relation := secretRelation(fromWorkspace, "")
	relation.Spec.Object.Namespace = toService("{{ .Object.spec.target }}")
	withRelated(relation)(e)
	allow(t, e, map[string]string{publication.AnnotationAllowedNamespaces: otherTenant})
	createWidget(e)
	changeWidget(setField("spec.target", otherTenant))(e)
	nameSecret(e)
	e.createIn(e.workspace, object(secrets, credsInWorkspace, "data: {password: b25l}"))
	e.settle()
	key := types.NamespacedName{Namespace: otherTenant, Name: "creds"}
	expectField(t, e.get(e.service, secrets, key), "b25l", "data", "password")
	allow(t, e, nil)
	return e, key
}

func changeSecret(value string) func(e *env) {
	return func(e *env) { e.change(e.workspace, secrets, credsInWorkspace, setField("data.password", value)) }
}

func TestCopyWhereTheAgentMustNotWriteAnyMoreStays(t *testing.T) {
	t.Run("until the primary object is deleted", func(t *testing.T) {
		e, key := withForeignCopy(t)
		changeSecret("dHdv")(e)
		expectGuarded(t, e)
		expectField(t, e.get(e.service, secrets, key), "b25l", "data", "password")
		deleteWidget(e)
		e.settle()
		expectNothingLeft(t, e)
		if e.get(e.service, secrets, key) != nil {
			t.Error("the copy is left")
		}
	})
	t.Run("until its original is deleted", func(t *testing.T) {
		e, key := withForeignCopy(t)
		e.deleteIn(e.workspace, secrets, credsInWorkspace)
		_, _ = e.sync(testKey)
		_, _ = e.sync(testKey)
		if e.get(e.workspace, secrets, credsInWorkspace) != nil || e.get(e.service, secrets, key) != nil {
			t.Errorf("original or copy is left:\n%s", e.dump())
		}
	})
	t.Run("until the locator leads elsewhere", func(t *testing.T) {
		e, key := withForeignCopy(t)
		changeWidget(setField("spec.target", testCluster.String()))(e)
		e.settle()
		if e.get(e.service, secrets, key) != nil {
			t.Error("the previous copy is left")
		}
		expectField(t, e.get(e.service, secrets, credsOnService), "b25l", "data", "password")
	})
	t.Run("until it is allowed again", func(t *testing.T) {
		e, key := withForeignCopy(t)
		changeSecret("dHdv")(e)
		expectGuarded(t, e)
		allow(t, e, map[string]string{publication.AnnotationAllowedNamespaces: otherTenant})
		e.settle()
		expectField(t, e.get(e.service, secrets, key), "dHdv", "data", "password")
	})
	t.Run("though the state is lost", func(t *testing.T) {
		e, key := withForeignCopy(t)
		for _, lost := range stateSecrets(e) {
			e.deleteIn(e.service, secrets, types.NamespacedName{Namespace: testNamespace, Name: lost})
		}
		expectGuarded(t, e)
		deleteWidget(e)
		e.settle()
		expectNothingLeft(t, e)
		if e.get(e.service, secrets, key) != nil || len(e.get(e.workspace, secrets, credsInWorkspace).GetFinalizers()) > 0 {
			t.Errorf("something is left:\n%s", e.dump())
		}
	})
}

func TestLocatorThatChangesLeavesObjectsOfOthers(t *testing.T) {
	e := newEnv(t)
	relation := secretRelation(fromWorkspace, "")
	relation.Spec.Object.Namespace = toService("{{ .Object.spec.target }}")
	withRelated(relation)(e)
	createWidget(e)
	nameSecret(e)
	e.createIn(e.workspace, object(secrets, credsInWorkspace, "data: {password: b25l}"))
	var theirs []types.NamespacedName
	for _, namespace := range []string{otherTenant, "kube-system", testNamespace} {
		if namespace != testNamespace {
			e.createIn(e.service, object(workspaces.Namespaces, types.NamespacedName{Name: namespace}, ""))
		}
		key := types.NamespacedName{Namespace: namespace, Name: "creds"}
		theirs = append(theirs, key)
		e.createIn(e.service, object(secrets, key, "data: {password: dGhlaXJz}"))
	}
	for _, target := range []string{otherTenant, testCluster.String(), "kube-system", testNamespace, testCluster.String(), otherTenant} {
		changeWidget(setField("spec.target", target))(e)
		for range 3 {
			_, _ = e.sync(testKey)
		}
		if got := e.get(e.service, secrets, credsOnService) != nil; got != (target == testCluster.String()) {
			t.Errorf("with %s, the copy is in the namespace of the copy of the primary object: %v", target, got)
		}
	}
	deleteWidget(e)
	e.settle()
	expectNothingLeft(t, e)
	for _, key := range theirs {
		if object := e.get(e.service, secrets, key); object == nil || len(object.GetLabels()) > 0 {
			t.Errorf("%s has been changed: %v", key, object)
		} else {
			expectField(t, object, "dGhlaXJz", "data", "password")
		}
	}
}

func TestAdoptionIsConfined(t *testing.T) {
	const team = "{{ .Object.metadata.namespace }}"
	for name, test := range map[string]struct {
		naming    *syncagentv1alpha1.ResourceNaming
		namespace string
		allowed   string
		refused   bool
	}{
		"in the namespace of the logical cluster":   {nil, testCluster.String(), "", false},
		"in one that the owner has chosen":          {&syncagentv1alpha1.ResourceNaming{Namespace: "shared"}, "shared", "", false},
		"in one that the consumer has named":        {&syncagentv1alpha1.ResourceNaming{Namespace: team}, testKey.Namespace, "", true},
		"in one that the owner has allowed":         {&syncagentv1alpha1.ResourceNaming{Namespace: team}, testKey.Namespace, testKey.Namespace, false},
		"in one of the logical cluster and a field": {&syncagentv1alpha1.ResourceNaming{Namespace: "{{ .ClusterName }}-" + team}, testCluster.String() + "-" + testKey.Namespace, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{Naming: test.naming}}
			if test.allowed != "" {
				allow(t, e, map[string]string{publication.AnnotationAllowedNamespaces: test.allowed})
			}
			createWidget(e)
			e.settle() // determines the name of the copy
			key := e.copyKey()
			if key.Namespace != test.namespace {
				t.Fatalf("the copy is %s", key)
			}
			deleteWidget(e)
			e.settle()
			e.createIn(e.service, object(widgetOnService, key, "spec: {theirs: true}"))
			createWidget(e)
			if !test.refused {
				e.settle()
				expectField(t, e.theCopy(), testAgent, "metadata", "labels", publication.LabelAgentName)
				return
			}
			expectGuarded(t, e)
			expectField(t, e.theCopy(), true, "spec", "theirs")
			deleteWidget(e)
			e.settle()
			if e.get(e.workspace, widgetInWorkspace, testKey) != nil {
				t.Error("the primary object cannot be deleted")
			}
			expectField(t, e.theCopy(), true, "spec", "theirs")
		})
	}
}

func TestCopyWithoutLabelsIsStillTheCopy(t *testing.T) {
	e := newEnv(t)
	e.config.Publication = &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{
		Naming: &syncagentv1alpha1.ResourceNaming{Namespace: "{{ .Object.metadata.namespace }}"},
	}}
	createWidget(e)
	e.settle()
	changeCopy(func(o *unstructured.Unstructured) { o.SetLabels(nil) })(e)
	e.settle()
	if e.theCopy().GetLabels()[publication.LabelAgentName] != testAgent {
		t.Error("the copy has not got its labels back")
	}
}

func TestRefusalSaysWhatToDo(t *testing.T) {
	e, key := withForeignCopy(t)
	_, err := e.sync(testKey)
	var guarded *GuardedError
	if !errors.As(err, &guarded) || !strings.Contains(err.Error(), publication.AnnotationAllowedNamespaces) || !strings.Contains(err.Error(), key.Namespace) {
		t.Errorf("got error %v", err)
	}
}
