package apis

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiserver/pkg/admission"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

func TestAPIResourceSchema(t *testing.T) {
	const names = `names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}`
	const version = `versions: [{name: v1, served: true, storage: true, schema: {type: object}}]`
	spec := func(more string) string { return `{group: example.com, scope: Namespaced, ` + more + `}` }
	for sentence, tc := range map[string]struct {
		name, spec, wantErr string
		annotations         map[string]string
	}{
		"a schema":                               {spec: spec(names + `, ` + version)},
		"prefix with a dash":                     {name: "today-1.widgets.example.com", spec: spec(names + `, ` + version)},
		"a name of another resource":             {name: "v1.gadgets.example.com", spec: spec(names + `, ` + version), wantErr: "must end in .widgets.example.com"},
		"a name without a prefix":                {name: "widgets.example.com", spec: spec(names + `, ` + version), wantErr: "must end in .widgets.example.com"},
		"a prefix with a dot":                    {name: "v1.x.widgets.example.com", spec: spec(names + `, ` + version), wantErr: `"v1.x" must match`},
		"a prefix that begins with a digit":      {name: "1v.widgets.example.com", spec: spec(names + `, ` + version), wantErr: `"1v" must match`},
		"core group":                             {name: "v1.widgets.core", spec: `{group: "", scope: Cluster, ` + names + `, ` + version + `}`},
		"core group by its alias":                {name: "v1.widgets.core", spec: `{group: core, scope: Cluster, ` + names + `, ` + version + `}`, wantErr: "spec.group: Invalid value"},
		"an old group without a dot":             {name: "v1.widgets.apps", spec: `{group: apps, scope: Cluster, ` + names + `, ` + version + `}`},
		"another group without a dot":            {name: "v1.widgets.example", spec: `{group: example, scope: Cluster, ` + names + `, ` + version + `}`, wantErr: "should be a domain with at least one dot"},
		"a group of Kubernetes":                  {name: "v1.widgets.a.k8s.io", spec: `{group: a.k8s.io, scope: Cluster, ` + names + `, ` + version + `}`, wantErr: "api-approved.kubernetes.io"},
		"an approved group of Kubernetes":        {name: "v1.widgets.a.k8s.io", spec: `{group: a.k8s.io, scope: Cluster, ` + names + `, ` + version + `}`, annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "https://github.com/kubernetes/kubernetes/pull/1"}},
		"no singular":                            {spec: spec(`names: {plural: widgets, kind: Widget, listKind: WidgetList}, ` + version), wantErr: "spec.names.singular: Required value"},
		"no kind of lists":                       {spec: spec(`names: {plural: widgets, singular: widget, kind: Widget}, ` + version), wantErr: "spec.names.listKind: Required value"},
		"a plural in capitals":                   {name: "v1.Widgets.example.com", spec: spec(`names: {plural: Widgets, singular: widget, kind: Widget, listKind: WidgetList}, ` + version), wantErr: "spec.names.plural: Invalid value"},
		"no storage version":                     {spec: spec(names + `, versions: [{name: v1, served: true, storage: false, schema: {type: object}}]`), wantErr: "exactly one version"},
		"two storage versions":                   {spec: spec(names + `, conversion: {strategy: None}, versions: [{name: v1, served: true, storage: true, schema: {type: object}}, {name: v2, served: true, storage: true, schema: {type: object}}]`), wantErr: "exactly one version"},
		"a schema that is not structural":        {spec: spec(names + `, versions: [{name: v1, served: true, storage: true, schema: {type: object, properties: {a: {}}}}]`), wantErr: "type: Required value"},
		"a default that would be pruned":         {spec: spec(names + `, versions: [{name: v1, served: true, storage: true, schema: {type: object, properties: {a: {type: object, default: {b: c}}}}}]`), wantErr: "default"},
		"a rule that does not compile":           {spec: spec(names + `, versions: [{name: v1, served: true, storage: true, schema: {type: object, x-kubernetes-validations: [{rule: "self.nope"}]}}]`), wantErr: "compilation failed"},
		"a rule that costs too much":             {spec: spec(names + `, versions: [{name: v1, served: true, storage: true, schema: {type: object, properties: {a: {type: array, items: {type: string}, x-kubernetes-validations: [{rule: "self.all(x, self.all(y, x.contains(y)))"}]}}}}]`), wantErr: "estimated rule cost"},
		"invalid schema":                         {spec: spec(names + `, versions: [{name: v1, served: true, storage: true, schema: {type: 1}}]`), wantErr: "the schema of version v1"},
		"warning without deprecation":            {spec: spec(names + `, versions: [{name: v1, served: true, storage: true, deprecationWarning: old, schema: {type: object}}]`), wantErr: "can only be set for deprecated versions"},
		"a webhook without a recognised version": {spec: spec(names + `, ` + version + `, conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v9], clientConfig: {url: "https://a.test"}}}`), wantErr: "must include at least one of v1, v1beta1"},
		"webhook without clientConfig":           {spec: spec(names + `, ` + version + `, conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1]}}`), wantErr: "webhookClientConfig"},
	} {
		t.Run(sentence, func(t *testing.T) {
			schema := newSchema(t, tc.spec)
			schema.Name, schema.Annotations = "v1.widgets.example.com", tc.annotations
			if tc.name != "" {
				schema.Name = tc.name
			}
			q := admissiontest.Request{Cluster: "c1", Resource: rules.APIResourceSchemas, Name: schema.Name, User: admissiontest.Alice, Operation: admission.Create, Object: schema}
			err := admissiontest.AdmitAndValidate(t, NewAPIResourceSchema(admissiontest.NewShard().Config()), q)
			if tc.wantErr == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			admissiontest.WantForbidden(t, err, tc.wantErr)
		})
	}
}

func newSchema(t *testing.T, spec string) *apisv1alpha1.APIResourceSchema {
	t.Helper()
	schema := &apisv1alpha1.APIResourceSchema{}
	if err := yaml.UnmarshalStrict([]byte(`spec: `+spec), schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestAPIResourceSchemaIsImmutable(t *testing.T) {
	old := newSchema(t, `{group: example.com, scope: Namespaced, names: {plural: widgets, kind: Widget}, versions: [{name: v1, storage: true, schema: {type: object, properties: {a: {type: string}}}}]}`)
	same := newSchema(t, `{scope: Namespaced, group: example.com, names: {kind: Widget, plural: widgets}, versions: [{schema: {properties: {a: {type: string}}, type: object}, name: v1, storage: true, served: true}]}`)
	same.Labels = map[string]string{"a": "b"}
	same.Spec.Versions[0].Schema.Raw = []byte(`{ "properties": {"a": {"type":"string"}}, "type": "object" }`)
	other := old.DeepCopy()
	other.Spec.Names.ShortNames = []string{"w"}

	q := admissiontest.Request{Cluster: "c1", Resource: rules.APIResourceSchemas, User: admissiontest.Master, Operation: admission.Update, Object: same, Old: old}
	if err := admissiontest.AdmitAndValidate(t, NewAPIResourceSchema(admissiontest.NewShard().Config()), q); err != nil {
		t.Error(err)
	}
	q.Object = other
	admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewAPIResourceSchema(admissiontest.NewShard().Config()), q), "is immutable")
}
