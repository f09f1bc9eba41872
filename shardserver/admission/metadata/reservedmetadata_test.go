package metadata

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

func TestReservedMetadata(t *testing.T) {
	annotated := func(keysAndValues ...string) *core.ConfigMap {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: admissiontest.ToMap(keysAndValues)}}
	}
	labelled := func(keysAndValues ...string) *core.ConfigMap {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: admissiontest.ToMap(keysAndValues)}}
	}
	for sentence, tc := range map[string]struct {
		by       user.Info
		obj, old *core.ConfigMap
		wantErr  string
	}{
		"other keys":                                  {admissiontest.Alice, annotated("example.com/a", "b", "core.kcp.io/max-total-objects", "1", "kcp.io/path", "root"), nil, ""},
		"reserved annotation is added":                {admissiontest.Alice, annotated("example.com/kcp.io", "b"), nil, `annotation "example.com/kcp.io" is reserved`},
		"reserved label is added":                     {admissiontest.Alice, labelled("kcp.io", "b"), nil, `label "kcp.io" is reserved`},
		"reserved annotation is unchanged":            {admissiontest.Alice, annotated("kcp.io", "b", "x", "y"), annotated("kcp.io", "b"), ""},
		"reserved annotation is changed":              {admissiontest.Alice, annotated("kcp.io", "c"), annotated("kcp.io", "b"), "reserved"},
		"reserved label is removed":                   {admissiontest.Alice, labelled(), labelled("kcp.io", "b"), "reserved"},
		"reserved label with an empty value is added": {admissiontest.Alice, labelled("kcp.io", ""), labelled(), "reserved"},
		"reserved annotation is changed by masters":   {admissiontest.Master, annotated("kcp.io", "c"), annotated("kcp.io", "b"), ""},
		"key with the suffix and without a slash":     {admissiontest.Alice, annotated("mykcp.io", "c"), nil, "reserved"},
	} {
		t.Run(sentence, func(t *testing.T) {
			q := admissiontest.Request{Cluster: "c1", Resource: schema.GroupResource{Resource: "configmaps"}, Name: "x", User: tc.by, Operation: admission.Create, Object: tc.obj}
			if tc.old != nil {
				q.Operation, q.Old = admission.Update, runtime.Object(tc.old)
			}
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewReservedMetadata(rules.Config{}), q), tc.wantErr)
		})
	}
}
