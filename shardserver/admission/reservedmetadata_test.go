package admission

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"
)

func TestReservedMetadata(t *testing.T) {
	annotated := func(keysAndValues ...string) *core.ConfigMap {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: toMap(keysAndValues)}}
	}
	labelled := func(keysAndValues ...string) *core.ConfigMap {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: toMap(keysAndValues)}}
	}
	for sentence, tc := range map[string]struct {
		by       user.Info
		obj, old *core.ConfigMap
		wantErr  string
	}{
		"other keys":                                  {alice, annotated("example.com/a", "b", "core.kcp.io/max-total-objects", "1", "kcp.io/path", "root"), nil, ""},
		"reserved annotation is added":                {alice, annotated("example.com/kcp.io", "b"), nil, `annotation "example.com/kcp.io" is reserved`},
		"reserved label is added":                     {alice, labelled("kcp.io", "b"), nil, `label "kcp.io" is reserved`},
		"reserved annotation is unchanged":            {alice, annotated("kcp.io", "b", "x", "y"), annotated("kcp.io", "b"), ""},
		"reserved annotation is changed":              {alice, annotated("kcp.io", "c"), annotated("kcp.io", "b"), "reserved"},
		"reserved label is removed":                   {alice, labelled(), labelled("kcp.io", "b"), "reserved"},
		"reserved label with an empty value is added": {alice, labelled("kcp.io", ""), labelled(), "reserved"},
		"reserved annotation is changed by masters":   {master, annotated("kcp.io", "c"), annotated("kcp.io", "b"), ""},
		"key with the suffix and without a slash":     {alice, annotated("mykcp.io", "c"), nil, "reserved"},
	} {
		t.Run(sentence, func(t *testing.T) {
			q := testRequest{cluster: "c1", resource: schema.GroupResource{Resource: "configmaps"}, name: "x", user: tc.by, operation: admission.Create, obj: tc.obj}
			if tc.old != nil {
				q.operation, q.old = admission.Update, runtime.Object(tc.old)
			}
			wantForbidden(t, admitAndValidate(t, newReservedMetadata(Config{}), q), tc.wantErr)
		})
	}
}
