package related

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

func TestOwnerChoosesNamespace(t *testing.T) {
	const namespace = "kube-system"
	type locator = syncagentv1alpha1.RelatedResourceObjectSpec
	template := func(text string) *syncagentv1alpha1.TemplateExpression {
		return &syncagentv1alpha1.TemplateExpression{Template: text}
	}
	byTemplate := func(text string) *locator { return &locator{Template: template(text)} }
	byReference := func(regex *syncagentv1alpha1.RegularExpression) *locator {
		return &locator{Reference: &syncagentv1alpha1.RelatedResourceObjectReference{Path: "spec.namespace", Regex: regex}}
	}
	bySelector := func(value string, rewrite syncagentv1alpha1.RelatedResourceSelectorRewrite) *locator {
		return &locator{Selector: &syncagentv1alpha1.RelatedResourceObjectSelector{
			LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": value}}, Rewrite: rewrite,
		}}
	}
	toValue := syncagentv1alpha1.RelatedResourceSelectorRewrite{Template: template("{{ .Value }}")}
	toConstant := syncagentv1alpha1.RelatedResourceSelectorRewrite{Regex: &syncagentv1alpha1.RegularExpression{Replacement: namespace}}
	const service, kcp = syncagentv1alpha1.RelatedResourceOriginService, syncagentv1alpha1.RelatedResourceOriginKcp
	for name, test := range map[string]struct {
		locator *locator
		naming  *syncagentv1alpha1.ResourceNaming
		origin  syncagentv1alpha1.RelatedResourceOrigin
		want    bool
	}{
		"no locator, default naming":             {nil, nil, service, false},
		"no locator, constant naming":            {nil, &syncagentv1alpha1.ResourceNaming{Namespace: namespace, Name: "$remoteName"}, service, true},
		"no locator, naming by the object":       {nil, &syncagentv1alpha1.ResourceNaming{Namespace: "{{ .Object.metadata.namespace }}"}, service, false},
		"no locator, naming by placeholders":     {nil, &syncagentv1alpha1.ResourceNaming{Namespace: "$remoteNamespace"}, service, false},
		"the replacement of everything":          {byReference(&syncagentv1alpha1.RegularExpression{Replacement: namespace}), nil, service, true},
		"a replacement of a part":                {byReference(&syncagentv1alpha1.RegularExpression{Pattern: "^", Replacement: namespace}), nil, service, false},
		"a reference":                            {byReference(nil), nil, service, false},
		"a text":                                 {byTemplate(namespace), nil, service, true},
		"a text for this side only":              {byTemplate(`{{ if eq .Side "kcp" }}{{ .Object.metadata.namespace }}{{ else }}kube-system{{ end }}`), nil, kcp, true},
		"a text for the other side":              {byTemplate(`{{ if eq .Side "kcp" }}kube-system{{ else }}{{ .Object.spec.namespace }}{{ end }}`), nil, kcp, false},
		"a template of a field":                  {byTemplate("{{ .Object.spec.namespace }}"), nil, service, false},
		"a condition on a field":                 {byTemplate("{{ if .Object.spec.admin }}kube-system{{ end }}"), nil, service, false},
		"a prefix":                               {byTemplate("kube-{{ .Object.metadata.namespace }}"), nil, service, false},
		"a constant selector":                    {bySelector("system", toValue), nil, service, true},
		"a selector with a value of the object":  {bySelector("{{ .RemoteObject.spec.role }}", toValue), nil, service, false},
		"the name of the consumer's namespace":   {bySelector("system", toValue), nil, kcp, false},
		"one namespace for those of consumers":   {bySelector("system", toConstant), nil, kcp, true},
		"no locator at all in an invalid entry ": {&locator{}, nil, service, false},
	} {
		spec := syncagentv1alpha1.RelatedResourceSpec{Origin: test.origin, Object: syncagentv1alpha1.RelatedResourceObject{Namespace: test.locator}}
		if got := OwnerChoosesNamespace(spec, test.naming, "2cluster", namespace); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestOwnerChoosesCopyName(t *testing.T) {
	const name = "creds"
	object := func(spec syncagentv1alpha1.RelatedResourceObjectSpec) syncagentv1alpha1.RelatedResourceObject {
		return syncagentv1alpha1.RelatedResourceObject{RelatedResourceObjectSpec: spec}
	}
	byTemplate := func(text string) syncagentv1alpha1.RelatedResourceObject {
		return object(syncagentv1alpha1.RelatedResourceObjectSpec{Template: &syncagentv1alpha1.TemplateExpression{Template: text}})
	}
	bySelector := func(template string) syncagentv1alpha1.RelatedResourceObject {
		return object(syncagentv1alpha1.RelatedResourceObjectSpec{Selector: &syncagentv1alpha1.RelatedResourceObjectSelector{
			Rewrite: syncagentv1alpha1.RelatedResourceSelectorRewrite{Template: &syncagentv1alpha1.TemplateExpression{Template: template}},
		}})
	}
	for description, test := range map[string]struct {
		object syncagentv1alpha1.RelatedResourceObject
		want   bool
	}{
		"a text":                                  {byTemplate(name), true},
		"a field":                                 {byTemplate("{{ .Object.spec.name }}"), false},
		"a field with a default":                  {byTemplate(`{{ .Object.spec.name | default "creds" }}`), true},
		"a field after a text":                    {byTemplate("{{ .Object.spec.none }}creds"), false},
		"the name of the original":                {bySelector("{{ .Value }}"), false},
		"a text for all originals":                {bySelector(name), true},
		"the name of the original, if it is that": {bySelector(`{{ if eq .Value "creds" }}creds{{ end }}`), false},
		"a reference": {object(syncagentv1alpha1.RelatedResourceObjectSpec{
			Reference: &syncagentv1alpha1.RelatedResourceObjectReference{Path: "spec.name"},
		}), false},
		"a reference that is replaced": {object(syncagentv1alpha1.RelatedResourceObjectSpec{
			Reference: &syncagentv1alpha1.RelatedResourceObjectReference{Path: "spec.name", Regex: &syncagentv1alpha1.RegularExpression{Replacement: name}},
		}), true},
	} {
		spec := syncagentv1alpha1.RelatedResourceSpec{Origin: syncagentv1alpha1.RelatedResourceOriginKcp, Object: test.object}
		if got := OwnerChoosesCopyName(spec, "2cluster", name); got != test.want {
			t.Errorf("%s: got %v, want %v", description, got, test.want)
		}
	}
}

func TestOwnerChoosesPrimary(t *testing.T) {
	for description, test := range map[string]struct {
		naming *syncagentv1alpha1.ResourceNaming
		key    types.NamespacedName
		want   bool
	}{
		"the default":                      {nil, types.NamespacedName{Namespace: "2cluster", Name: "a"}, false},
		"a namespace, whatever the name":   {&syncagentv1alpha1.ResourceNaming{Namespace: "shared", Name: "{{ .Object.metadata.name }}"}, types.NamespacedName{Namespace: "shared", Name: "a"}, true},
		"a namespace of the object":        {&syncagentv1alpha1.ResourceNaming{Namespace: "{{ .Object.metadata.namespace }}", Name: "a"}, types.NamespacedName{Namespace: "shared", Name: "a"}, false},
		"a name of a cluster-scoped copy":  {&syncagentv1alpha1.ResourceNaming{Name: "a"}, types.NamespacedName{Name: "a"}, true},
		"the name of a cluster-scoped one": {&syncagentv1alpha1.ResourceNaming{Name: "$remoteName"}, types.NamespacedName{Name: "a"}, false},
		"the logical cluster":              {&syncagentv1alpha1.ResourceNaming{Name: "$remoteClusterName"}, types.NamespacedName{Name: "2cluster"}, true},
	} {
		if got := OwnerChoosesPrimary(test.naming, "2cluster", test.key); got != test.want {
			t.Errorf("%s: got %v, want %v", description, got, test.want)
		}
	}
}
