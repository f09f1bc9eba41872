package shard

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/rekey"
)

// newTokenServer returns a Deployment that has rolled out, with an annotation and mounted Secrets.
func newTokenServer(name, trust string, secrets ...string) *appsv1.Deployment {
	out := &appsv1.Deployment{ObjectMeta: inKCP(name)}
	out.Spec.Selector, out.Spec.Replicas = &metav1.LabelSelector{}, ptr.To[int32](1)
	out.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	if trust != "" {
		out.Spec.Template.Annotations = map[string]string{desired.TrustAnnotation(desired.ServiceAccountKeys): trust}
	}
	for _, secret := range secrets {
		out.Spec.Template.Spec.Volumes = append(out.Spec.Template.Spec.Volumes, corev1.Volume{
			Name: secret, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
		})
	}
	return out
}

// TestTokenKeyBlockers: what a re-keying of the service account keys waits for.
func TestTokenKeyBlockers(t *testing.T) {
	const both, second = "trusts 1 and 2, has 1", "trusts 2, has 2"
	shard := &operatorv1alpha1.Shard{ObjectMeta: inKCP("alpha")}
	shard.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	beta := shard.DeepCopy()
	beta.Name = "beta"
	front := &operatorv1alpha1.FrontProxy{ObjectMeta: inKCP("front")}
	front.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	front.Spec.Auth = &operatorv1alpha1.AuthSpec{ServiceAccount: &operatorv1alpha1.ServiceAccountAuthentication{Enabled: true}}
	other := front.DeepCopy()
	other.Name, other.Spec.Auth = "other", nil
	alphaKeys := []client.Object{newCA(t, "alpha-service-account"), newCA(t, "alpha-service-account-2")}
	alpha := newTokenServer("alpha-shard-kcp", both, "alpha-service-account", "alpha-service-account-2")
	signing := newTokenServer("alpha-shard-kcp", "trusts 1 and 2, has 2", "alpha-service-account", "alpha-service-account-2")
	foreign := alpha.DeepCopy()
	foreign.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kcp", Args: []string{"--service-account-key-file=/own/sa.pub"}}}
	for name, tc := range map[string]struct {
		phase   operatorv1alpha1.CertificateAuthorityPhase
		objects []client.Object
		want    string        // in a blocker; "" for none
		waited  time.Duration // while nothing is missing
	}{
		"a shard has no second key":      {"TrustBoth", []client.Object{newCA(t, "alpha-service-account")}, "Secret alpha-service-account-2 has no key yet: see Certificate alpha-service-account-2", 0},
		"a shard that has never started": {"TrustBoth", append(alphaKeys, alpha, beta), "", 0},
		"a shard that is about to start": {"TrustBoth", append(alphaKeys, alpha, beta, newCA(t, "beta-service-account")), "Secret beta-service-account-2 has no key yet", 0},
		"a shard that has lost its keys": {"TrustBoth", append(alphaKeys, alpha, beta, newTokenServer("beta-shard-kcp", "")), "Secret beta-service-account-2 has no key yet", 0},
		"pods of before":                 {"TrustBoth", append(alphaKeys, newTokenServer("alpha-shard-kcp", "", "alpha-service-account")), "the pods of Deployment alpha-shard-kcp are to be replaced", 0},
		"a front proxy with the old keys": {
			"TrustBoth", append(alphaKeys, alpha, newTokenServer("front-front-proxy", both, "root-service-account", "alpha-service-account", "alpha-service-account-2")),
			"Deployment front-front-proxy has not the keys of all shards: it mounts root-service-account, and is to mount root-service-account, root-service-account-2", 0,
		},
		"a front proxy that accepts no tokens": {"TrustBoth", append(alphaKeys, alpha, newTokenServer("other-front-proxy", "")), "", 0},
		"all have all":                         {"TrustBoth", append(alphaKeys, alpha), "", 0},
		"a shard signs with the previous key":  {"Issue", append(alphaKeys, alpha), "the pods of Deployment alpha-shard-kcp are to be replaced", rekey.IssueHold},
		"pods may still terminate":             {"Issue", append(alphaKeys, signing), "wait until all shards sign with generation 2 only", 0},
		"the user":                             {"Issue", append(alphaKeys, signing), "those of Secrets do not expire", rekey.IssueHold},
		"a key of the user":                    {"TrustBoth", append(alphaKeys, foreign), "Deployment alpha-shard-kcp has --service-account-key-file with a key of your own", 0},
		"pods accept the previous key":         {"Retire", append(alphaKeys, newTokenServer("alpha-shard-kcp", second, "alpha-service-account-2", "alpha-service-account")), "and is to mount alpha-service-account-2", 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := rekeyed(desired.ServiceAccountKeys, tc.phase, 1, 2, 2)
			s := newEnv(t, append(tc.objects, root, shard.DeepCopy(), front.DeepCopy(), other.DeepCopy(), newCA(t, "root-service-account"), newCA(t, "root-service-account-2"))...)
			s.reconcileRoot("root") // records that all keys exist
			s.clock = s.clock.Add(tc.waited + time.Second)
			root = s.reconcileRoot("root")
			blocked := blockedBy(root, desired.ServiceAccountKeys)
			if text := strings.Join(blocked, "\n"); tc.want == "" && text != "" || !strings.Contains(text, tc.want) {
				t.Errorf("blocked by %q, want %q", blocked, tc.want)
			} else if renew := strings.Contains(text, "retireGeneration"); renew != (name == "the user") { // else new tokens may be signed by the previous key
				t.Errorf("blocked by %q", blocked)
			}
			state := desired.CAState(root, desired.ServiceAccountKeys)
			if known := state.NextFingerprint != ""; known == strings.Contains(tc.want, "has no key yet") || state.NotAfter != nil {
				t.Errorf("the record is %+v", state)
			}
			shown := meta.FindStatusCondition(root.Status.Conditions, operatorv1alpha1.ConditionCertificatesRekeyed)
			if shown == nil || shown.Status != metav1.ConditionFalse || shown.Reason != string(tc.phase) || !strings.Contains(shown.Message, "tokens of service accounts") {
				t.Errorf("the condition is %+v", shown)
			}
		})
	}
}

// TestForeignTokenKeys: a re-keying does not begin while a shard has keys that the operator does not know.
func TestForeignTokenKeys(t *testing.T) {
	for flag, want := range map[string]operatorv1alpha1.CertificateAuthorityPhase{"--service-account-private-key-file=/own/sa.key": "Stable", "--logging-format=text": "TrustBoth"} {
		server := newTokenServer("alpha-shard-kcp", "", "alpha-service-account")
		server.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kcp", Args: []string{flag}}}
		root := newEnv(t, rekeyed(desired.ServiceAccountKeys, "Stable", 1, 0, 2), newShard(nil), server).reconcileRoot("root")
		shown := meta.FindStatusCondition(root.Status.Conditions, operatorv1alpha1.ConditionCertificatesRekeyed)
		named := shown != nil && shown.Reason == operatorv1alpha1.ReasonRekeyBlocked && strings.Contains(shown.Message, "Deployment alpha-shard-kcp has --service-account-private-key-file with a key of your own")
		if state := desired.CAState(root, desired.ServiceAccountKeys); state.Phase != want || named != (want == "Stable") {
			t.Errorf("%s: phase %s, condition %+v", flag, state.Phase, shown)
		}
	}
}

// TestRetiredTokenKeys: the keys of the previous generation are deleted, of all shards.
func TestRetiredTokenKeys(t *testing.T) {
	shard := &operatorv1alpha1.Shard{ObjectMeta: inKCP("alpha")}
	shard.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	objects := []client.Object{rekeyed(desired.ServiceAccountKeys, "Retire", 1, 2, 2), shard, newTokenServer("alpha-shard-kcp", "trusts 2, has 2", "alpha-service-account-2")}
	for _, name := range []string{"root-service-account", "alpha-service-account"} {
		objects = append(objects, newCA(t, name), leftOver(name, "root-service-account-ca"), newCA(t, name+"-2"))
	}
	s := newEnv(t, objects...)
	for range 8 {
		s.reconcileRoot("root")
	}
	for name, want := range map[string]bool{
		"root-service-account": false, "alpha-service-account": false, "root-service-account-2": true, "alpha-service-account-2": true,
	} {
		err := s.client.Get(t.Context(), client.ObjectKey{Namespace: "kcp", Name: name}, &corev1.Secret{})
		if exists := err == nil; exists != want || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("Secret %s: %v", name, err)
		}
	}
	root := s.reconcileRoot("root")
	if state := desired.CAState(root, desired.ServiceAccountKeys); state.Phase != operatorv1alpha1.CertificateAuthorityStable || state.Generation != 2 {
		t.Errorf("the record is %+v", state)
	}
}

// TestLostRecordOfTokenKeys: which key signs is found from the pods of the root shard, and generations from the keys of all shards.
func TestLostRecordOfTokenKeys(t *testing.T) {
	shard := &operatorv1alpha1.Shard{ObjectMeta: inKCP("alpha")}
	shard.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	for name, tc := range map[string]struct {
		trust string
		keys  []string
		phase operatorv1alpha1.CertificateAuthorityPhase
	}{
		"the first signs":                {"trusts 1 and 2, has 1", []string{"root-service-account", "root-service-account-2", "alpha-service-account", "alpha-service-account-2"}, "TrustBoth"},
		"the second signs":               {"trusts 1 and 2, has 2", []string{"root-service-account", "root-service-account-2", "alpha-service-account", "alpha-service-account-2"}, "Issue"},
		"the first is being retired":     {"trusts 2, has 2", []string{"root-service-account-2", "alpha-service-account", "alpha-service-account-2"}, "Issue"},
		"some shard has the second only": {"", []string{"root-service-account", "alpha-service-account-2"}, "TrustBoth"},
		"there is the second only":       {"trusts 2, has 2", []string{"root-service-account-2", "alpha-service-account-2", "stranger-service-account"}, "Stable"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{rekeyed(desired.ServiceAccountKeys, "", 0, 0, 2), shard.DeepCopy(), newTokenServer("root-kcp", tc.trust)}
			for _, name := range tc.keys {
				objects = append(objects, newCA(t, name))
			}
			root := newEnv(t, objects...).reconcileRoot("root")
			if state := desired.CAState(root, desired.ServiceAccountKeys); state == nil || state.Phase != tc.phase {
				t.Errorf("the record is %+v", state)
			}
		})
	}
}
