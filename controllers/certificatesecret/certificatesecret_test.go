package certificatesecret

import (
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/pki"
)

func TestSecrets(t *testing.T) {
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
	kubeconfig := &operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "jane", Namespace: "kcp", UID: "kubeconfig"}}
	certificate := pki.Kubeconfig(kubeconfig, root)
	certificate.UID = "certificate"
	foreign := certificate.DeepCopy()
	foreign.OwnerReferences = nil
	issued := func(change func(*corev1.Secret)) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: certificate.Spec.SecretName, Namespace: "kcp", UID: "secret",
			Labels: certificate.Spec.SecretTemplate.Labels, Annotations: map[string]string{certmanagerv1.CertificateNameKey: certificate.Name},
		}}
		if change != nil {
			change(secret)
		}
		return secret
	}
	for name, tc := range map[string]struct {
		secret  *corev1.Secret
		others  []client.Object
		deleted bool
		owned   bool
		again   bool
	}{
		"a new one belongs to its Certificate":                    {secret: issued(nil), others: []client.Object{root, kubeconfig, certificate}, owned: true},
		"so does one whose Kubeconfig was just deleted":           {secret: issued(nil), others: []client.Object{root, certificate}, owned: true},
		"one that was issued after both are gone is deleted":      {secret: issued(nil), others: []client.Object{root}, deleted: true},
		"it waits for a Certificate that the cache does not have": {secret: issued(nil), others: []client.Object{root, kubeconfig}, again: true},
		"the Certificate of somebody else is left alone":          {secret: issued(nil), others: []client.Object{root, foreign}},
		"a Secret that cert-manager did not issue is left alone":  {secret: issued(func(s *corev1.Secret) { s.Annotations = nil }), others: []client.Object{root}},
		"so is one of a shard, which may be a restored key":       {secret: issued(func(s *corev1.Secret) { s.Labels = map[string]string{operatorv1alpha1.LabelShard: "alpha"} })},
	} {
		t.Run(name, func(t *testing.T) {
			c := memory.NewClient(t, append([]client.Object{tc.secret}, tc.others...)...)
			key := client.ObjectKeyFromObject(tc.secret)
			result, err := (&Reconciler{Cluster: apply.Cluster{Client: c}}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if err != nil || (result.RequeueAfter > 0) != tc.again {
				t.Errorf("got %v, %v", result, err)
			}
			left, err := apply.Get[corev1.Secret](t.Context(), c, key.Namespace, key.Name)
			if err != nil {
				t.Fatal(err)
			}
			if (left == nil) != tc.deleted || left != nil && (len(left.OwnerReferences) == 1 && left.OwnerReferences[0].UID == certificate.UID) != tc.owned {
				t.Errorf("the Secret is %+v", left)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp", UID: "root"}}
	certificate := pki.Kubeconfig(&operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "jane", Namespace: "kcp", UID: "jane"}}, root)
	foreign := certificate.DeepCopy()
	foreign.OwnerReferences = nil
	key := client.ObjectKey{Namespace: "kcp", Name: certificate.Spec.SecretName}
	if got := secretOf(t.Context(), certificate); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("a Certificate that is observed after its Secret enqueues %v, want %s", got, key)
	}
	if got := secretOf(t.Context(), foreign); len(got) != 0 {
		t.Errorf("the Certificate of somebody else enqueues %v", got)
	}
	issued := map[string]string{certmanagerv1.CertificateNameKey: "x"}
	for name, tc := range map[string]struct {
		annotations, labels map[string]string
		want                bool
	}{
		"a Secret of a Kubeconfig":       {issued, certificate.Spec.SecretTemplate.Labels, true},
		"a Secret of a shard":            {issued, map[string]string{operatorv1alpha1.LabelShard: "alpha"}, true},
		"a Secret of somebody else":      {issued, map[string]string{"app": "web"}, false},
		"a Secret without a label":       {issued, nil, false},
		"one that was not issued at all": {nil, map[string]string{operatorv1alpha1.LabelShard: "alpha"}, false},
	} {
		if got := isIssued(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations, Labels: tc.labels}}); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
