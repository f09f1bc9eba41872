package kcpoperator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/rekey"
)

// testRekey: certificate authorities get other keys, one after another and at once, while all servers accept all that is in use.
func (e *env) testRekey(t *testing.T) {
	r := e.newRekeying(t)
	for _, ca := range desired.RekeyableCAs() {
		r.until("the installation runs", ca, func(state *operatorv1alpha1.CertificateAuthorityStatus) bool {
			return state.Phase == operatorv1alpha1.CertificateAuthorityStable && state.Fingerprint != "" && len(r.pods.running) == 5 && r.kubeconfig() != nil
		})
		r.checkTrust(ca, "")
	}
	r.checkConsumers()
	r.checkSchema()
	r.copies[desired.ClientCA] = r.copy(desired.ClientCA)
	r.giveSecondKey(desired.ClientCA, func() {})

	r.copies[desired.RequestHeaderCA] = r.copy(desired.RequestHeaderCA)
	r.giveSecondKey(desired.RequestHeaderCA, func() {
		r.setRekey(desired.ClientCA, `{"ca": %q, "generation": 3, "retireGeneration": 1}`)
	})
	r.until("the re-keying at the same time waits for the user", desired.ClientCA, func(state *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return state.Phase == operatorv1alpha1.CertificateAuthorityIssue && len(state.BlockedBy) == 2
	})
	r.giveSecondTokenKeys()
	if r.killed == 0 {
		t.Error("the operator was never killed")
	}
	r.remove()
}

// giveSecondKey gives a CA its second key: the new CA is not issued at first, the user's certificate is late, and the status is lost. meanwhile
// is called when the new CA can be issued.
func (r *rekeying) giveSecondKey(ca desired.CA, meanwhile func()) {
	r.t.Helper()
	first, previous := "root-"+string(ca), r.copies[ca]
	second := first + "-2"
	r.certManager.refuses = second
	r.setRekey(ca, `{"ca": %q, "generation": 2}`)
	r.checkUnissued(ca)
	meanwhile()
	issuing := r.until("the re-keying waits for the user", ca, func(state *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return state.Phase == operatorv1alpha1.CertificateAuthorityIssue && state.ReadySince == nil && len(state.BlockedBy) == 2
	})
	mine := consumersOf[ca].mine
	if got := issuing.BlockedBy; !strings.Contains(got[0], "renew it with `cmctl renew -n rekey "+mine+"`") || !strings.Contains(got[1], consumersOf[ca].blocker) {
		r.t.Errorf("it is blocked by %q", got)
	}
	if issuing.Fingerprint == issuing.NextFingerprint || issuing.SecretName != second || issuing.NotAfter == nil {
		r.t.Errorf("got %+v", issuing)
	}
	r.loseStatus()
	r.deleteSecret(mine) // cert-manager issues it again
	r.awaitConfirmation(ca)
	r.copies[ca] = r.copy(ca)
	r.setRekey(ca, `{"ca": %q, "generation": 2, "retireGeneration": 1}`)
	r.checkEnd(ca, previous)
}

func (r *rekeying) awaitConfirmation(ca desired.CA) {
	r.t.Helper()
	r.until("the re-keying waits for the confirmation only", ca, func(state *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return state.Phase == operatorv1alpha1.CertificateAuthorityIssue && state.ReadySince != nil && r.now.Sub(state.ReadySince.Time) > rekey.IssueHold
	})
}

// copy is a certificate that somebody has copied.
func (r *rekeying) copy(ca desired.CA) []byte {
	r.t.Helper()
	if ca == desired.ClientCA {
		return r.kubeconfig()
	}
	return r.secret(consumersOf[ca].mine).Data[corev1.TLSCertKey]
}

// checkConsumers: the test knows what the installation has of each CA.
func (r *rekeying) checkConsumers() {
	r.t.Helper()
	want := map[desired.CA][]string{
		desired.ClientCA:        {"alpha-client", "root-client", "root-front-kubeconfig", "root-proxy-kubeconfig", "virtual-client"},
		desired.RequestHeaderCA: {"root-front-requestheader", "root-proxy-requestheader"},
	}
	for ca, names := range want {
		var mounted []string
		for name, files := range r.pods.running {
			if len(files.trusts[ca]) == 0 {
				r.t.Errorf("%s trusts no %s", name, ca)
			}
			mounted = slices.AppendSeq(mounted, maps.Keys(files.has[ca]))
		}
		if slices.Sort(mounted); !slices.Equal(mounted, names) {
			r.t.Errorf("pods have %q of %s, want %q", mounted, ca, names)
		}
		for _, name := range append(consumersOf[ca].secrets, consumersOf[ca].mine) {
			if !isOfCA(r.secret(name).Data[corev1.TLSCertKey], ca) {
				r.t.Errorf("Secret %s has no certificate of %s", name, ca)
			}
		}
	}
}

// checkTrust: the pods of all servers have the annotation.
func (r *rekeying) checkTrust(ca desired.CA, want string) {
	r.t.Helper()
	for name := range r.pods.running {
		if trust := desired.LiveCATrust(&r.deployment(name).Spec.Template, ca); trust != want {
			r.t.Errorf("the pods of %s say %q of %s, want %q", name, trust, ca, want)
		}
	}
}

// checkUnissued: a next CA that cert-manager does not issue holds nothing else.
func (r *rekeying) checkUnissued(ca desired.CA) {
	r.t.Helper()
	name := "root-" + string(ca) + "-2"
	r.until("the re-keying waits for its CA", ca, func(state *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return state.Phase == operatorv1alpha1.CertificateAuthorityTrustBoth && len(state.BlockedBy) == 1 && strings.Contains(state.BlockedBy[0], "see Certificate "+name)
	})
	rounds := 3 // after which each reconciler has seen the record
	r.until("all reconcilers have run", ca, func(*operatorv1alpha1.CertificateAuthorityStatus) bool { rounds--; return rounds < 0 })
	if err := r.Get(r.t.Context(), client.ObjectKey{Namespace: rekeyNamespace, Name: name}, &certmanagerv1.Certificate{}); err != nil {
		r.t.Errorf("the next CA is not made: %v", err)
	}
	if ready := meta.FindStatusCondition(r.root().Status.Conditions, operatorv1alpha1.ConditionCertificatesReady); ready == nil || ready.Status != metav1.ConditionTrue {
		r.t.Errorf("the root shard waits for the next CA: %+v", ready)
	}
	r.checkTrust(ca, "")
	r.certManager.refuses = ""
}

// checkSchema: entries remain, generations grow, and no other authority is accepted.
func (r *rekeying) checkSchema() {
	r.t.Helper()
	refused := map[string]string{
		`[{"ca": "client-ca", "generation": 0}]`:                                       "greater than or equal to 1",
		`[{"ca": "client-ca", "generation": 2, "retireGeneration": 2}]`:                "retireGeneration is to be lower than generation",
		`[{"ca": "client-ca", "generation": 2}, {"ca": "client-ca", "generation": 3}]`: "Duplicate value",
	}
	for _, ca := range []string{"ca", "root-ca", "server-ca", "service-account-ca", "etcd-ca", "cache-ca"} {
		refused[fmt.Sprintf(`[{"ca": %q, "generation": 2}]`, ca)] = `supported values: "client-ca", "requestheader-client-ca"`
	}
	for patch, text := range refused {
		if err := r.patchRekey(patch); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(text)) {
			r.t.Errorf("%s: got %v, want %q", patch, err, text)
		}
	}
}

// setRekey sets the entry of a CA, and checks that none can be removed or set back.
func (r *rekeying) setRekey(ca desired.CA, entry string) {
	r.t.Helper()
	r.entries[ca] = fmt.Sprintf(entry, ca)
	if err := r.patchRekey("[" + strings.Join(slices.Collect(maps.Values(r.entries)), ", ") + "]"); err != nil {
		r.t.Fatal(err)
	}
	for _, patch := range []string{"null", "[]", fmt.Sprintf(`[{"ca": %q, "generation": 1}]`, ca)} {
		if err := r.patchRekey(patch); err == nil || !strings.Contains(err.Error(), "their generation only grows") {
			r.t.Errorf("%s: got %v", patch, err)
		}
	}
}

func (r *rekeying) patchRekey(rekey string) error {
	return r.Patch(r.t.Context(), r.root(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec": {"certificates": {"rekey": %s}}}`, rekey)))
}

// loseStatus removes the record, as a restore of objects without their status does.
func (r *rekeying) loseStatus() {
	r.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status": {"certificates": null}}`))
	if err := r.Status().Patch(r.t.Context(), r.root(), patch); err != nil {
		r.t.Fatal(err)
	}
}

// checkEnd waits for the end of a re-keying, and checks that nothing of the previous generation is left.
func (r *rekeying) checkEnd(ca desired.CA, previous []byte) {
	r.t.Helper()
	const generation = 2
	state := r.until("the re-keying has ended", ca, func(state *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return state.Phase == operatorv1alpha1.CertificateAuthorityStable && state.Generation == generation
	})
	root := r.root()
	first, current, former := desired.CAOfGeneration(root, ca, 1), desired.CAOfGeneration(root, ca, generation), desired.CAOfGeneration(root, ca, generation-1)
	if state.SecretName != current || state.NextGeneration != 0 || state.NextFingerprint != "" || state.Fingerprint == "" || len(state.BlockedBy) > 0 {
		r.t.Errorf("got %+v", state)
	}
	r.checkTrust(ca, fmt.Sprintf("trusts %d, has %d", generation, generation))
	for name, files := range r.pods.running {
		if verifyClient(previous, files.trusts[ca]) == nil {
			r.t.Errorf("%s accepts a certificate of the previous key", name)
		}
	}
	if secret := r.secret(former); secret.UID != "" {
		r.t.Error("the key of the previous generation remains")
	}
	issuer := &certmanagerv1.Issuer{}
	if err := r.Get(r.t.Context(), client.ObjectKey{Namespace: rekeyNamespace, Name: first}, issuer); err != nil || issuer.Spec.CA.SecretName != current {
		r.t.Errorf("the Issuer that users name has %+v: %v", issuer.Spec.CA, err)
	}
	shown := meta.FindStatusCondition(root.Status.Conditions, operatorv1alpha1.ConditionCertificatesRekeyed)
	if shown == nil || strings.Contains(shown.Message, " of "+string(ca)) { // another CA may be in progress
		r.t.Errorf("the condition is %+v", shown)
	}
}
