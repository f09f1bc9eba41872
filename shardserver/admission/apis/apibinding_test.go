package apis

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/metadata"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

func newExport(name string) *apisv1alpha2.APIExport {
	return &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func setCluster(export *apisv1alpha2.APIExport, cluster string) *apisv1alpha2.APIExport {
	export.Annotations = map[string]string{logicalcluster.AnnotationKey: cluster}
	return export
}

func exportLabel(cluster, name string) string {
	_, value := apiindex.ExportLabel(bindings.ExportKey{Cluster: logicalcluster.MustParseName(cluster), Name: name})
	return value
}

// newExportShard returns a shard where c1, at root:org, exports widgets, of which alice may bind one.
func newExportShard() *admissiontest.Shard {
	return admissiontest.NewShard().
		Workspace("root", "org", "c1").
		Cluster("c2", logicalcluster.PathAnnotationKey, "root:far:own").
		Add("c1", setCluster(newExport("widgets"), "c1"), true).
		Add("c1", setCluster(newExport("secrets"), "c1"), false).
		Allow("alice bind c1/apiexports/widgets", "alice bind c1/apiexports/gone", "alice bind c2/apiexports/later", "alice bind root/apiexports/later")
}

func newBinding(t *testing.T, text string) *apisv1alpha2.APIBinding {
	t.Helper()
	obj := &apisv1alpha2.APIBinding{}
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	obj.Name = "b"
	return obj
}

func TestAPIBinding(t *testing.T) {
	plugin := NewAPIBinding(newExportShard().Config())
	to := func(path, name string) string {
		return `spec: {reference: {export: {path: "` + path + `", name: ` + name + `}}}`
	}
	claiming := func(claim string) string {
		return `spec: {reference: {export: {path: "root:org", name: widgets}}, permissionClaims: [{resource: pods, verbs: ["*"], state: Accepted, ` + claim + `}]}`
	}
	const refused = "no permission to bind to export "
	for sentence, tc := range map[string]struct {
		by            user.Info
		version       string
		old, object   string
		subresource   string
		label, refuse string
	}{
		"by path":                                         {object: to("root:org", "widgets"), label: exportLabel("c1", "widgets")},
		"by cluster name":                                 {object: to("c1", "widgets"), label: exportLabel("c1", "widgets")},
		"a forged label is replaced":                      {object: `{metadata: {labels: {internal.apis.kcp.io/export: forged, a: b}}, ` + to("c1", "widgets") + `}`, label: exportLabel("c1", "widgets")},
		"export without permission":                       {object: to("root:org", "secrets"), refuse: refused + "root:org:secrets"},
		"missing export":                                  {object: to("root:org", "gone"), refuse: refused + "root:org:gone"},
		"missing export, masters":                         {by: admissiontest.Master, object: to("root:org", "gone"), refuse: refused + "root:org:gone"},
		"missing path":                                    {object: to("root:missing", "widgets"), refuse: refused + "root:missing:widgets"},
		"existing export, masters":                        {by: admissiontest.Master, object: to("root:org", "secrets"), label: exportLabel("c1", "secrets")},
		"later export in the same workspace":              {object: to("", "later"), label: exportLabel("c2", "later")},
		"later export in the same workspace, by its path": {object: to("root:far:own", "later"), label: exportLabel("c2", "later")},
		"later export in root":                            {object: to("root", "later"), label: exportLabel("root", "later")},
		"export in the same workspace without permission": {object: to("", "other"), refuse: refused + "c2:other"},
		"export in root without permission":               {object: to("root", "other"), refuse: refused + "root:other"},
		"no export":                                       {object: `spec: {reference: {}}`},
		"update of the same export by another user":       {by: admissiontest.Member("other"), old: `{metadata: {labels: {internal.apis.kcp.io/export: ` + exportLabel("c1", "secrets") + `}}, ` + to("root:org", "secrets") + `}`, object: to("root:org", "secrets"), label: exportLabel("c1", "secrets")},
		"update after the export was deleted":             {by: admissiontest.Member("other"), old: `{metadata: {labels: {internal.apis.kcp.io/export: ` + exportLabel("c1", "gone") + `}}, ` + to("root:org", "gone") + `}`, object: `{metadata: {labels: {internal.apis.kcp.io/export: forged}}, ` + to("root:org", "gone") + `}`, label: exportLabel("c1", "gone")},
		"update to another export":                        {old: `{metadata: {labels: {internal.apis.kcp.io/export: ` + exportLabel("c1", "widgets") + `}}, ` + to("root:org", "widgets") + `}`, object: to("root:org", "secrets"), refuse: refused + "root:org:secrets"},
		"all objects":                                     {object: claiming(`selector: {matchAll: true}`), label: exportLabel("c1", "widgets")},
		"objects by labels":                               {object: claiming(`selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: Exists}]}`), label: exportLabel("c1", "widgets")},
		"no objects":                                      {object: claiming(`selector: {}`), refuse: "must have either matchAll"},
		"all objects and a selector":                      {object: claiming(`selector: {matchAll: true, matchLabels: {a: b}}`), refuse: "must have either matchAll"},
		"invalid selector":                                {object: claiming(`selector: {matchExpressions: [{key: c, operator: Likes}]}`), refuse: "not a valid selector operator"},
		"invalid annotation":                              {version: "v1alpha1", object: `{metadata: {annotations: {apis.v1alpha2.kcp.io/acceptable-permission-claims: nonsense}}, ` + to("c1", "widgets") + `}`, refuse: "apis.v1alpha2.kcp.io/acceptable-permission-claims cannot be used"},
		"invalid annotation in the other version":         {version: "v1alpha2", object: `{metadata: {annotations: {apis.v1alpha2.kcp.io/acceptable-permission-claims: nonsense}}, ` + to("c1", "widgets") + `}`, label: exportLabel("c1", "widgets")},
		"annotation about a missing claim":                {version: "v1alpha1", object: `{metadata: {annotations: {apis.v1alpha2.kcp.io/acceptable-permission-claims: '[{"resource":"pods","verbs":["get"]}]'}}, ` + to("c1", "widgets") + `}`, refuse: "contains a claim of pods, which the object does not"},
		"phase that advances":                             {subresource: "status", old: `status: {phase: Binding}`, object: `status: {phase: Bound}`},
		"phase that is reset by masters":                  {by: admissiontest.Master, subresource: "status", old: `status: {phase: Bound}`, object: `{}`, refuse: `cannot transition from "Bound" to ""`},
		"no phase before and after":                       {subresource: "status", old: `{}`, object: `{}`},
	} {
		t.Run(sentence, func(t *testing.T) {
			obj := newBinding(t, tc.object)
			q := admissiontest.Request{Cluster: "c2", Version: "v1alpha2", Resource: rules.APIBindings, Subresource: tc.subresource, Name: "b", User: admissiontest.Alice, Operation: admission.Create, Object: obj}
			if tc.version != "" {
				q.Version = tc.version
			}
			if tc.by != nil {
				q.User = tc.by
			}
			if tc.old != "" {
				q.Operation, q.Old = admission.Update, newBinding(t, tc.old)
			}
			err := admissiontest.AdmitAndValidate(t, plugin, q)
			if tc.refuse != "" {
				admissiontest.WantForbidden(t, err, tc.refuse)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := obj.Labels[apisv1alpha2.ExportLabelKey]; got != tc.label {
				t.Errorf("label %q, want %q", got, tc.label)
			}
		})
	}

	t.Run("a later plug-in cannot change the label", func(t *testing.T) {
		obj := newBinding(t, `{metadata: {labels: {internal.apis.kcp.io/export: forged}}, `+to("c1", "widgets")+`}`)
		q := admissiontest.Request{Cluster: "c2", Resource: rules.APIBindings, Name: "b", User: admissiontest.Alice, Operation: admission.Create, Object: obj}
		admissiontest.WantForbidden(t, admissiontest.ValidateOnly(t, plugin, q), "label internal.apis.kcp.io/export must be")
	})
	t.Run("an export that is replicated between mutation and validation", func(t *testing.T) {
		q := admissiontest.Request{Cluster: "c2", Resource: rules.APIBindings, Name: "b", User: admissiontest.Alice, Operation: admission.Create, Object: newBinding(t, to("c1", "widgets"))}
		wantRetry(t, admissiontest.ValidateOnly(t, plugin, q))
		q.User = admissiontest.Member("other")
		admissiontest.WantForbidden(t, admissiontest.ValidateOnly(t, plugin, q), refused+"c1:widgets")
	})
}

// wantRetry checks that clients repeat a request on their own, and learn nothing of labels that they have not sent.
func wantRetry(t *testing.T, err error) {
	t.Helper()
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != 1 || strings.Contains(err.Error(), "internal") {
		t.Errorf("got %v", err)
	}
}

func TestAPIExportEndpointSlice(t *testing.T) {
	plugin := NewAPIExportEndpointSlice(newExportShard().Config())
	slice := func(path, name, partition string) *apisv1alpha1.APIExportEndpointSlice {
		return &apisv1alpha1.APIExportEndpointSlice{Spec: apisv1alpha1.APIExportEndpointSliceSpec{
			APIExport: apisv1alpha1.ExportBindingReference{Path: path, Name: name}, Partition: partition,
		}}
	}
	for sentence, tc := range map[string]struct {
		obj, old *apisv1alpha1.APIExportEndpointSlice
		refuse   string
	}{
		"export with permission":             {obj: slice("root:org", "widgets", "")},
		"export without permission":          {obj: slice("root:org", "secrets", ""), refuse: "no permission to bind to export root:org:secrets"},
		"missing export":                     {obj: slice("root:org", "gone", ""), refuse: "no permission to bind to export root:org:gone"},
		"later export in the same workspace": {obj: slice("", "later", "")},
		"the same by its path":               {obj: slice("root:far:own", "later", "")},
		"without permission to bind it":      {obj: slice("", "other", ""), refuse: "no permission to bind to export c2:other"},
		"later export in another workspace":  {obj: slice("c1", "gone", ""), refuse: "no permission to bind to export c1:gone"},
		"changed partition":                  {obj: slice("root:org", "secrets", "b"), old: slice("root:org", "secrets", "a")},
	} {
		t.Run(sentence, func(t *testing.T) {
			q := admissiontest.Request{Cluster: "c2", Resource: rules.APIExportEndpointSlices, Name: "s", User: admissiontest.Alice, Operation: admission.Create, Object: tc.obj}
			if tc.old != nil {
				q.Operation, q.Old = admission.Update, tc.old
			}
			err := admissiontest.AdmitAndValidate(t, plugin, q)
			if tc.refuse == "" && err == nil {
				return
			}
			admissiontest.WantForbidden(t, err, tc.refuse)
		})
	}
}

func TestAPIExport(t *testing.T) {
	for sentence, tc := range map[string]struct{ version, object, refuse string }{
		"empty":                                          {object: `{}`},
		"a schema of the resource":                       {object: `spec: {resources: [{name: widgets, group: example.com, schema: v1.widgets.example.com}, {name: pods, group: "", schema: v1.pods.core}]}`},
		"a schema of another resource":                   {object: `spec: {resources: [{name: widgets, group: example.com, schema: v1.gadgets.example.com}]}`, refuse: "must end in .widgets.example.com"},
		"a schema of another group":                      {object: `spec: {resources: [{name: pods, group: "", schema: v1.pods.example.com}]}`, refuse: "must end in .pods.core"},
		"claim of built-in resources":                    {object: `spec: {permissionClaims: [{resource: secrets, verbs: ["*"]}, {group: rbac.authorization.k8s.io, resource: roles, verbs: [get]}, {group: core.kcp.io, resource: logicalclusters, verbs: [get]}]}`},
		"a claim of bindings":                            {object: `spec: {permissionClaims: [{group: apis.kcp.io, resource: apibindings, verbs: ["*"]}]}`},
		"claim of an exported resource without identity": {object: `spec: {permissionClaims: [{group: example.com, resource: widgets, verbs: ["*"]}]}`, refuse: `spec.permissionClaims[0].identityHash: Invalid value: "": identityHash is required for API types that are not built-in`},
		"a claim of a subresource":                       {object: `spec: {permissionClaims: [{resource: serviceaccounts/token, verbs: [create], defaultSelector: {matchAll: true}}]}`},
		"a claim of a subresource by labels":             {object: `spec: {permissionClaims: [{resource: serviceaccounts/token, verbs: [create], defaultSelector: {matchLabels: {a: b}}}]}`, refuse: "spec.permissionClaims[0].defaultSelector: Invalid value"},
		"a claim of a subresource of another export":     {object: `spec: {permissionClaims: [{group: example.com, resource: widgets/scale, verbs: [get], identityHash: abc}]}`, refuse: "spec.permissionClaims[0].resource: Invalid value"},
		"claim of an exported resource with an identity": {object: `spec: {permissionClaims: [{group: example.com, resource: widgets, verbs: ["*"], identityHash: abc}]}`},
		"invalid annotation":                             {version: "v1alpha1", object: `metadata: {annotations: {apis.v1alpha2.kcp.io/resource-schemas: "[{]"}}`, refuse: "apis.v1alpha2.kcp.io/resource-schemas cannot be used"},
		"annotation with a duplicate claim":              {version: "v1alpha1", object: `{metadata: {annotations: {apis.v1alpha2.kcp.io/permission-claims: '[{"resource":"pods"},{"resource":"pods"}]'}}, spec: {permissionClaims: [{resource: configmaps, verbs: ["*"]}]}}`, refuse: "contains"},
	} {
		t.Run(sentence, func(t *testing.T) {
			obj := newExport("e")
			if err := yaml.UnmarshalStrict([]byte(tc.object), obj); err != nil {
				t.Fatal(err)
			}
			q := admissiontest.Request{Cluster: "c1", Version: tc.version, Resource: rules.APIExports, Name: "e", User: admissiontest.Alice, Operation: admission.Create, Object: obj}
			if tc.version == "" {
				q.Version = "v1alpha2"
			}
			err := admissiontest.AdmitAndValidate(t, NewAPIExport(admissiontest.NewShard().Config()), q)
			if tc.refuse == "" && err == nil {
				return
			}
			admissiontest.WantForbidden(t, err, tc.refuse)
		})
	}
}

func TestAPIBindingFinalizer(t *testing.T) {
	obj := newBinding(t, `spec: {reference: {export: {name: e}}}`)
	q := admissiontest.Request{Cluster: "c1", Resource: rules.APIBindings, Name: "b", User: admissiontest.Alice, Operation: admission.Create, Object: obj}
	if err := admissiontest.AdmitAndValidate(t, NewAPIBindingFinalizer(rules.Config{}), q); err != nil || len(obj.Finalizers) != 1 || obj.Finalizers[0] != "apis.kcp.io/apibinding-finalizer" {
		t.Fatalf("%v, %v", obj.Finalizers, err)
	}
	deleting, bare := obj.DeepCopy(), obj.DeepCopy()
	now := metav1.Now()
	deleting.DeletionTimestamp, bare.DeletionTimestamp, bare.Finalizers = &now, &now, nil
	q = admissiontest.Request{Cluster: "c1", Resource: rules.APIBindings, Name: "b", User: admissiontest.Alice, Operation: admission.Update, Object: bare, Old: deleting}
	admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewAPIBindingFinalizer(rules.Config{}), q), "removing the finalizer apis.kcp.io/apibinding-finalizer is forbidden")
	q.User = admissiontest.Master
	if err := admissiontest.AdmitAndValidate(t, NewAPIBindingFinalizer(rules.Config{}), q); err != nil {
		t.Error(err)
	}
}

func TestPathAnnotationOfAPIs(t *testing.T) {
	state := admissiontest.NewShard().Cluster("c1", logicalcluster.PathAnnotationKey, "root:org")
	plugin := metadata.NewPathAnnotation(state.Config())
	export := newExport("e")
	q := admissiontest.Request{Cluster: "c1", Resource: rules.APIExports, Name: "e", User: admissiontest.Alice, Operation: admission.Create, Object: export}
	if err := admissiontest.AdmitAndValidate(t, plugin, q); err != nil || export.Annotations[logicalcluster.PathAnnotationKey] != "root:org" {
		t.Errorf("%v, %v", export.Annotations, err)
	}
	q.Cluster, q.Object = "c2", newExport("e")
	admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, plugin, q), "the logical cluster does not exist")

	unplaced := newBinding(t, `spec: {reference: {export: {name: e}}}`)
	q = admissiontest.Request{Cluster: "c2", Resource: rules.APIBindings, Name: "b", User: admissiontest.Alice, Operation: admission.Create, Object: unplaced}
	if err := admissiontest.AdmitAndValidate(t, plugin, q); err != nil || len(unplaced.Annotations) != 0 {
		t.Errorf("%v, %v", unplaced.Annotations, err)
	}
	state.Cluster("c2", logicalcluster.PathAnnotationKey, "root:late") // between mutation and validation
	wantRetry(t, admissiontest.ValidateOnly(t, plugin, q))
}
