package limits

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/rbac"
)

func TestAddUsage(t *testing.T) {
	const name = core.ResourceName("count/configmaps")
	list := func(number string) core.ResourceList { return core.ResourceList{name: resource.MustParse(number)} }
	for sentence, tc := range map[string]struct {
		limit   core.ResourceList
		status  core.ResourceQuotaStatus
		used    int64
		wantErr string
	}{
		"below the limit":            {list("2"), core.ResourceQuotaStatus{Hard: list("2"), Used: list("1")}, 2, ""},
		"at the limit":               {list("2"), core.ResourceQuotaStatus{Hard: list("2"), Used: list("2")}, 0, "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, limited: count/configmaps=2"},
		"above the limit":            {list("2"), core.ResourceQuotaStatus{Hard: list("2"), Used: list("5")}, 0, "exceeded quota"},
		"no status":                  {list("2"), core.ResourceQuotaStatus{}, 0, "status unknown for quota: q, resources: count/configmaps"},
		"status of another resource": {list("2"), core.ResourceQuotaStatus{Hard: core.ResourceList{"count/secrets": resource.MustParse("1")}, Used: core.ResourceList{"count/secrets": resource.MustParse("0")}}, 0, "status unknown for quota"},
		"status without used count":  {list("2"), core.ResourceQuotaStatus{Hard: list("2")}, 0, "status unknown for quota"},
	} {
		t.Run(sentence, func(t *testing.T) {
			stored := &core.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: core.ResourceQuotaSpec{Hard: tc.limit}, Status: tc.status}
			before := stored.DeepCopy()
			a := admission.NewAttributesRecord(&core.ConfigMap{}, nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "n", "x",
				corev1.SchemeGroupVersion.WithResource("configmaps"), "", admission.Create, &metav1.CreateOptions{}, false, nil)
			after, err := addUsage(stored, a, name)
			if !stored.ObjectMeta.CreationTimestamp.Equal(&before.CreationTimestamp) || len(stored.Status.Hard) != len(before.Status.Hard) {
				t.Error("the stored object was modified")
			}
			if tc.wantErr != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if used := after.Status.Used[name]; used.Value() != tc.used {
				t.Errorf("used is %s", used.String())
			}
		})
	}
}

func TestIsUncounted(t *testing.T) {
	binding := func(name string) *rbac.ClusterRoleBinding {
		return &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for sentence, tc := range map[string]struct {
		resource  string
		asked     string
		object    runtime.Object
		operation admission.Operation
		want      bool
	}{
		"binding of the creator":                 {"clusterrolebindings", workspaceAdmin, binding(workspaceAdmin), admission.Create, true},
		"deletion of the binding of the creator": {"clusterrolebindings", workspaceAdmin, nil, admission.Delete, true},
		"another binding":                        {"clusterrolebindings", "mine", binding("mine"), admission.Create, false},
		"binding renamed by a webhook":           {"clusterrolebindings", workspaceAdmin, binding("mine"), admission.Create, false},
		"role of that name":                      {"clusterroles", workspaceAdmin, binding(workspaceAdmin), admission.Create, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			a := admission.NewAttributesRecord(tc.object, nil, schema.GroupVersionKind{}, "", tc.asked, rbacv1.SchemeGroupVersion.WithResource(tc.resource), "", tc.operation, nil, false, nil)
			if got := isUncounted(a); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
