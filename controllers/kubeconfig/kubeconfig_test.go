package kubeconfig

import (
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
)

func TestPhase(t *testing.T) {
	const reference, available = operatorv1alpha1.ConditionReferenceValid, operatorv1alpha1.ConditionAvailable
	for name, tc := range map[string]struct {
		results []status.Result
		want    operatorv1alpha1.KubeconfigPhase
	}{
		"a target alone is not ready":  {[]status.Result{status.OK(reference, "R", "")}, operatorv1alpha1.KubeconfigPhaseProvisioning},
		"a written Secret is":          {[]status.Result{status.OK(reference, "R", ""), status.OK(available, "R", "")}, operatorv1alpha1.KubeconfigPhaseReady},
		"no target is a failure":       {[]status.Result{status.Wait(reference, "R", "")}, operatorv1alpha1.KubeconfigPhaseFailed},
		"no condition is Provisioning": {nil, operatorv1alpha1.KubeconfigPhaseProvisioning},
	} {
		t.Run(name, func(t *testing.T) {
			report := status.Report{Results: tc.results}
			if have := phase(report.Conditions(nil, 1)); have != tc.want {
				t.Errorf("got %s, want %s", have, tc.want)
			}
		})
	}
}

func TestCheckOwnership(t *testing.T) {
	k := &operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "k", UID: "1"}}
	newSecret := func(meta metav1.ObjectMeta, keys ...string) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{}}
		for _, key := range keys {
			secret.Data[key] = []byte("x")
		}
		return secret
	}
	other := &operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "2"}}
	for name, tc := range map[string]struct {
		existing *corev1.Secret
		owned    bool
		owner    string
	}{
		"a new Secret is owned":                     {nil, true, ""},
		"one with only the kubeconfig is adopted":   {newSecret(metav1.ObjectMeta{}, "kubeconfig"), true, ""},
		"one with other keys is kept":               {newSecret(metav1.ObjectMeta{}, "kubeconfig", "mine"), false, ""},
		"its own is owned":                          {newSecret(metav1.ObjectMeta{OwnerReferences: desired.NewOwnerReferences("Kubeconfig", k)}, "kubeconfig"), true, ""},
		"that of another Kubeconfig is not written": {newSecret(metav1.ObjectMeta{OwnerReferences: desired.NewOwnerReferences("Kubeconfig", other)}), false, "Kubeconfig other"},
		"that of a Certificate is not written":      {newSecret(metav1.ObjectMeta{Annotations: map[string]string{certmanagerv1.CertificateNameKey: "c"}}), false, "Certificate c"},
	} {
		t.Run(name, func(t *testing.T) {
			if owned, owner := checkOwnership(tc.existing, k); owned != tc.owned || owner != tc.owner {
				t.Errorf("got %v, %q", owned, owner)
			}
		})
	}
}

func TestWorkspaces(t *testing.T) {
	authorization := func(cluster string) *operatorv1alpha1.KubeconfigAuthorization {
		return &operatorv1alpha1.KubeconfigAuthorization{ClusterRoleBindings: operatorv1alpha1.KubeconfigClusterRoleBindings{
			Cluster: cluster, ClusterRoles: []string{"b", "a", "b"},
		}}
	}
	for name, tc := range map[string]struct {
		spec               operatorv1alpha1.KubeconfigSpec
		pointsAt, bindings string
	}{
		"root is the default":                  {operatorv1alpha1.KubeconfigSpec{Authorization: authorization("")}, "root", "root"},
		"the target workspace is for both":     {operatorv1alpha1.KubeconfigSpec{TargetWorkspace: "root:a", Authorization: authorization("")}, "root:a", "root:a"},
		"the deprecated field is for bindings": {operatorv1alpha1.KubeconfigSpec{Authorization: authorization("root:b")}, "root", "root:b"},
		"without authorization there are none": {operatorv1alpha1.KubeconfigSpec{TargetWorkspace: "root:a"}, "root:a", ""},
		"the new field takes precedence":       {operatorv1alpha1.KubeconfigSpec{TargetWorkspace: "root:a", Authorization: authorization("root:b")}, "root:a", "root:a"},
	} {
		t.Run(name, func(t *testing.T) {
			k := &operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "k", UID: "uid"}, Spec: tc.spec}
			if targetWorkspace(k) != tc.pointsAt || bindingWorkspace(k) != tc.bindings {
				t.Errorf("points at %q, bindings in %q", targetWorkspace(k), bindingWorkspace(k))
			}
			if tc.bindings == "" {
				return
			}
			bindings := desiredBindings(k)
			if len(bindings) != 2 || bindings[0].Name != "uid:a" || bindings[1].Name != "uid:b" || bindings[0].Subjects[0].Name != "kubeconfig:uid" {
				t.Errorf("bindings are %+v", bindings)
			}
		})
	}
}

func TestFormerGroup(t *testing.T) {
	k := &operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "k", UID: "uid"}}
	current, former, foreign := groupSubject("kubeconfig:uid"), groupSubject("kubeconfig:k"), groupSubject("others")
	for name, tc := range map[string]struct{ have, want []rbacv1.Subject }{
		"stays until the new certificate is written":         {[]rbacv1.Subject{former}, []rbacv1.Subject{current, former}},
		"stays beside the new one":                           {[]rbacv1.Subject{current, former}, []rbacv1.Subject{current, former}},
		"is never added":                                     {[]rbacv1.Subject{current}, []rbacv1.Subject{current}},
		"stays alone: other subjects are not the operator's": {[]rbacv1.Subject{foreign}, []rbacv1.Subject{current}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := withFormerGroup([]rbacv1.Subject{current}, tc.have, k); !slices.Equal(got, tc.want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestFormerGroupTime(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	written, waiting := status.OK(available, "R", ""), status.Wait(available, "R", "")
	for name, tc := range map[string]struct {
		result   status.Result
		issuedAt time.Time
		want     time.Duration
	}{
		"all of it until the Secret is written":      {waiting, time.Time{}, 10 * time.Minute},
		"the rest of it after the Secret is written": {written, now.Add(-4 * time.Minute), 6 * time.Minute},
		"nothing after ten minutes":                  {written, now.Add(-10 * time.Minute), 0},
		"nothing for an old certificate":             {written, now.Add(-24 * time.Hour), 0},
	} {
		s := &scope{report: &status.Report{Results: []status.Result{tc.result}}, now: now, issuedAt: tc.issuedAt}
		if got := s.formerGroupTime(); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestIgnoredFields(t *testing.T) {
	ref := &corev1.LocalObjectReference{Name: "a"}
	for name, tc := range map[string]struct {
		spec operatorv1alpha1.KubeconfigSpec
		text string // "" is all of it
	}{
		"one target": {operatorv1alpha1.KubeconfigSpec{Target: operatorv1alpha1.KubeconfigTarget{FrontProxyRef: ref}}, ""},
		"two targets": {operatorv1alpha1.KubeconfigSpec{Target: operatorv1alpha1.KubeconfigTarget{FrontProxyRef: ref, RootShardRef: ref}},
			"spec.target.frontProxyRef: rootShardRef is set, too, and takes precedence"},
		"Argo CD where it is unknown":   {operatorv1alpha1.KubeconfigSpec{ArgoCD: &operatorv1alpha1.KubeconfigArgoCD{}}, "spec.argoCD: the operator has no namespace of Argo CD"},
		"masters at a shard":            {operatorv1alpha1.KubeconfigSpec{Target: operatorv1alpha1.KubeconfigTarget{RootShardRef: ref}, Groups: []string{"system:masters"}}, ""},
		"masters through a front proxy": {operatorv1alpha1.KubeconfigSpec{Target: operatorv1alpha1.KubeconfigTarget{FrontProxyRef: ref}, Groups: []string{"system:masters"}}, "spec.groups: no user is in system:masters"},
	} {
		t.Run(name, func(t *testing.T) {
			result := status.SpecHonored(ignoredFields(&operatorv1alpha1.Kubeconfig{Spec: tc.spec}, ""))
			if (result.State == status.Satisfied) != (tc.text == "") || !strings.Contains(result.Message, tc.text) {
				t.Errorf("got %+v", result)
			}
		})
	}
}

func TestValidateWorkspace(t *testing.T) {
	for workspace, valid := range map[string]bool{
		"": true, "root": true, "root:team:app": true, "2ns3kqlzv9z0nuk8": true,
		"*": false, "root/api": false, "..": false, "root?a=b": false, "root:": false,
	} {
		if result := validateWorkspace(workspace); (result.State != status.Stalled) != valid {
			t.Errorf("%q: got %+v", workspace, result)
		}
	}
}
