package kcpoperator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/frontproxy"
	"github.com/atoll-dev/atoll/controllers/kubeconfig"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/rekey"
	"github.com/atoll-dev/atoll/controllers/shard"
	"github.com/atoll-dev/atoll/controllers/shardclient"
	"github.com/atoll-dev/atoll/controllers/virtualworkspace"
)

const rekeyNamespace = "rekey"

// errKilled is the error of a write of an operator that is killed before it.
var errKilled = errors.New("killed")

// rekeying is an installation with all kinds of servers, whose reconcilers run one after another in random order. Each write may be the last
// one of its reconcile. After each event, every server has to accept every client certificate that is in use.
type rekeying struct {
	*env
	t           *testing.T
	now         time.Time
	random      *rand.Rand
	reconcilers []func(context.Context) error
	certManager certManager
	pods        pods
	laptop      []byte // a kubeconfig's certificate of which the operator does not know; nil if there is none
	killed      int
	rounds      int
	changed     bool // since the last check
}

// testRekey: the client CA gets another key while all servers accept all clients.
func (e *env) testRekey(t *testing.T) {
	r := e.newRekeying(t)
	r.until("the installation runs", func(ca *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return ca.Phase == operatorv1alpha1.CertificateAuthorityStable && ca.Fingerprint != "" && len(r.pods.running) == 5 && r.kubeconfig() != nil
	})
	for name := range r.pods.running {
		if trust := desired.LiveClientCATrust(&r.deployment(name).Spec.Template); trust != "" {
			t.Errorf("%s has pods that depend on a re-keying before there was one: %s", name, trust)
		}
	}
	r.checkSchema()
	previous := r.kubeconfig()
	r.laptop = previous

	r.certManager.refuses = "root-client-ca-2"
	r.setRekey(`{"ca": "client-ca", "generation": 2}`)
	r.checkUnissued()
	issuing := r.until("the re-keying waits for the user", func(ca *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return ca.Phase == operatorv1alpha1.CertificateAuthorityIssue && ca.ReadySince == nil && len(ca.BlockedBy) == 2
	})
	if got := issuing.BlockedBy; !strings.Contains(got[0], "renew it with `cmctl renew -n rekey mine`") || !strings.Contains(got[1], "set retireGeneration of client-ca") {
		t.Errorf("it is blocked by %q", got)
	}
	if issuing.Fingerprint == issuing.NextFingerprint || issuing.SecretName != "root-client-ca-2" || issuing.NotAfter == nil {
		t.Errorf("got %+v", issuing)
	}
	r.loseStatus()
	r.deleteSecret("mine") // cert-manager issues it again
	r.until("the re-keying waits for the confirmation only", func(ca *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return ca.Phase == operatorv1alpha1.CertificateAuthorityIssue && ca.ReadySince != nil && r.now.Sub(ca.ReadySince.Time) > rekey.IssueHold
	})
	r.laptop = r.kubeconfig()
	r.setRekey(`{"ca": "client-ca", "generation": 2, "retireGeneration": 1}`)
	ended := r.until("the re-keying has ended", func(ca *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return ca.Phase == operatorv1alpha1.CertificateAuthorityStable && ca.Generation == 2
	})
	r.checkEnd(ended, previous)
	if r.killed == 0 {
		t.Error("the operator was never killed")
	}
	r.remove()
}

func (e *env) newRekeying(t *testing.T) *rekeying {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	r := &rekeying{env: e, t: t, now: time.Now(), random: rand.New(rand.NewPCG(1, 2))}
	r.certManager = certManager{Client: e.Client, namespace: rekeyNamespace}
	r.pods = pods{Client: e.Client, namespace: rekeyNamespace, running: map[string]files{}}
	r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rekeyNamespace}})
	for _, source := range append(sources(), moreSources()...) {
		source.SetNamespace(rekeyNamespace)
		if root, ok := source.(*operatorv1alpha1.RootShard); ok {
			root.Spec.Certificates.IssuerRef = nil
		}
		r.create(source)
	}
	watching, err := client.NewWithWatch(e.cluster.Config, client.Options{Scheme: e.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	config := reconcile.Config{
		Cluster: apply.Cluster{Client: r.killable(watching)}, Recorder: events.NewFakeRecorder(10000), Now: func() time.Time { return r.now },
		Image: desired.Image{Repository: "registry.example.com/atoll", Tag: "v1"},
	}
	registry := shardclient.New(config.Cluster)
	add := func(reconciler ctrlReconciler, name string) {
		r.reconcilers = append(r.reconcilers, func(ctx context.Context) error {
			_, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: rekeyNamespace, Name: name}})
			return err
		})
	}
	add(shard.NewRootShardReconciler(config, registry), "root")
	add(shard.NewShardReconciler(config, registry), "alpha")
	add(frontproxy.NewReconciler(config), "front")
	add(virtualworkspace.NewReconciler(config), "virtual")
	add(kubeconfig.NewReconciler(config), "admin")
	return r
}

type ctrlReconciler interface {
	Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error)
}

// moreSources are a virtual workspace server, the kubeconfig of a user, and a certificate that a user has from the client CA.
func moreSources() []client.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	return []client.Object{
		&operatorv1alpha1.VirtualWorkspace{ObjectMeta: meta("virtual"), Spec: operatorv1alpha1.VirtualWorkspaceSpec{
			Target:   operatorv1alpha1.VirtualWorkspaceTarget{ShardRef: &corev1.LocalObjectReference{Name: "alpha"}},
			External: operatorv1alpha1.ExternalConfig{Hostname: "virtual.example.com", Port: 6443},
		}},
		&operatorv1alpha1.Kubeconfig{ObjectMeta: meta("admin"), Spec: operatorv1alpha1.KubeconfigSpec{
			Username: "admin", Validity: metav1.Duration{Duration: time.Hour}, SecretRef: corev1.LocalObjectReference{Name: "admin"},
			Target: operatorv1alpha1.KubeconfigTarget{FrontProxyRef: &corev1.LocalObjectReference{Name: "front"}},
		}},
		&certmanagerv1.Certificate{ObjectMeta: meta("mine"), Spec: certmanagerv1.CertificateSpec{
			SecretName: "mine", CommonName: "mine", Usages: []certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth},
			IssuerRef: cmmeta.IssuerReference{Name: "root-client-ca", Kind: certmanagerv1.IssuerKind},
		}},
	}
}

// killable is a client of an operator that is killed before some of its writes.
func (r *rekeying) killable(inner client.WithWatch) client.Client {
	kill := func() error {
		if r.random.IntN(20) == 0 {
			r.killed++
			return errKilled
		}
		r.changed = true
		return nil
	}
	return interceptor.NewClient(inner, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if err := kill(); err != nil {
				return err
			}
			return c.Apply(ctx, object, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := kill(); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := kill(); err != nil {
				return err
			}
			return c.Delete(ctx, object, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := kill(); err != nil {
				return err
			}
			return c.SubResource(name).Patch(ctx, object, patch, options...)
		},
	})
}

// until lets the installation continue until the record has a state, and returns it. Two minutes pass with each round.
func (r *rekeying) until(what string, reached func(*operatorv1alpha1.CertificateAuthorityStatus) bool) *operatorv1alpha1.CertificateAuthorityStatus {
	r.t.Helper()
	for range 300 {
		root := r.root()
		if state := desired.CAState(root); state != nil && reached(state) {
			r.t.Logf("%s after %d rounds", what, r.rounds)
			return state
		}
		r.round()
	}
	root := r.root()
	r.t.Fatalf("%s: not within 300 rounds: %+v; %+v", what, desired.CAState(root), root.Status.Conditions)
	return nil
}

// round runs every reconciler and controller once, in random order.
func (r *rekeying) round() {
	r.t.Helper()
	run := []func(context.Context) error{r.pods.refresh, r.issue, r.issue, r.roll, r.roll}
	run = append(run, r.reconcilers...)
	r.random.Shuffle(len(run), func(i, j int) { run[i], run[j] = run[j], run[i] })
	for _, event := range run {
		if err := event(r.t.Context()); err != nil && !errors.Is(err, errKilled) && !apierrors.IsConflict(err) {
			r.t.Fatal(err)
		}
		r.check()
	}
	r.now = r.now.Add(2 * time.Minute)
	r.rounds++
}

func (r *rekeying) roll(ctx context.Context) error {
	rolled, err := r.pods.rollOne(ctx)
	r.changed = r.changed || rolled
	return err
}

// issue issues some of the certificates.
func (r *rekeying) issue(ctx context.Context) error {
	for range r.random.IntN(20) {
		if issued, err := r.certManager.issueOne(ctx); err != nil || !issued {
			return err
		}
		r.changed = true
	}
	return nil
}

// check checks the certificates in use: those of pods, of the operator, and of users.
func (r *rekeying) check() {
	r.t.Helper()
	if !r.changed {
		return
	}
	others := map[string][]byte{}
	r.changed = false
	for _, name := range []string{"root-kcp-operator", "mine"} {
		if file := r.secret(name).Data[corev1.TLSCertKey]; len(file) > 0 {
			others["Secret "+name] = file
		}
	}
	if file := r.kubeconfig(); file != nil {
		others["the kubeconfig"] = file
	}
	if r.laptop != nil {
		others["a copy of a kubeconfig"] = r.laptop
	}
	if err := r.pods.check(others); err != nil {
		r.t.Fatalf("in %+v: %v", desired.CAState(r.root()), err)
	}
}

// checkUnissued: a next CA that cert-manager does not issue holds nothing else.
func (r *rekeying) checkUnissued() {
	r.t.Helper()
	r.until("the re-keying waits for its CA", func(ca *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return ca.Phase == operatorv1alpha1.CertificateAuthorityTrustBoth && len(ca.BlockedBy) == 1 && strings.Contains(ca.BlockedBy[0], "see Certificate root-client-ca-2")
	})
	rounds := 3 // after which each reconciler has seen the record
	r.until("all reconcilers have run", func(*operatorv1alpha1.CertificateAuthorityStatus) bool { rounds--; return rounds < 0 })
	if err := r.Get(r.t.Context(), client.ObjectKey{Namespace: rekeyNamespace, Name: "root-client-ca-2"}, &certmanagerv1.Certificate{}); err != nil {
		r.t.Errorf("the next CA is not made: %v", err)
	}
	if ready := meta.FindStatusCondition(r.root().Status.Conditions, operatorv1alpha1.ConditionCertificatesReady); ready == nil || ready.Status != metav1.ConditionTrue {
		r.t.Errorf("the root shard waits for the next CA: %+v", ready)
	}
	for name := range r.pods.running {
		if trust := desired.LiveClientCATrust(&r.deployment(name).Spec.Template); trust != "" {
			r.t.Errorf("%s has pods that trust a CA that does not exist: %s", name, trust)
		}
	}
	r.certManager.refuses = ""
}

// checkSchema: entries remain, generations grow, and no other authority is accepted.
func (r *rekeying) checkSchema() {
	r.t.Helper()
	for patch, text := range map[string]string{
		`[{"ca": "server-ca", "generation": 2}]`:                                       `supported values: "client-ca"`,
		`[{"ca": "client-ca", "generation": 0}]`:                                       "greater than or equal to 1",
		`[{"ca": "client-ca", "generation": 2, "retireGeneration": 2}]`:                "retireGeneration is to be lower than generation",
		`[{"ca": "client-ca", "generation": 2}, {"ca": "client-ca", "generation": 3}]`: "Duplicate value",
	} {
		if err := r.patchRekey(patch); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(text)) {
			r.t.Errorf("%s: got %v, want %q", patch, err, text)
		}
	}
}

func (r *rekeying) setRekey(entry string) {
	r.t.Helper()
	if err := r.patchRekey("[" + entry + "]"); err != nil {
		r.t.Fatal(err)
	}
	for _, patch := range []string{"null", "[]", `[{"ca": "client-ca", "generation": 1}]`} {
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

func (r *rekeying) checkEnd(state *operatorv1alpha1.CertificateAuthorityStatus, previous []byte) {
	r.t.Helper()
	if state.SecretName != "root-client-ca-2" || state.NextGeneration != 0 || state.NextFingerprint != "" || state.Fingerprint == "" || len(state.BlockedBy) > 0 {
		r.t.Errorf("got %+v", state)
	}
	for name, files := range r.pods.running {
		if verifyClient(previous, files.trusts) == nil {
			r.t.Errorf("%s accepts a certificate of the previous key", name)
		}
		if trust := desired.LiveClientCATrust(&r.deployment(name).Spec.Template); trust != "trusts 2, has 2" {
			r.t.Errorf("the pods of %s say: %s", name, trust)
		}
	}
	if secret := r.secret("root-client-ca"); secret.UID != "" {
		r.t.Error("the key of the previous generation remains")
	}
	issuer := &certmanagerv1.Issuer{}
	if err := r.Get(r.t.Context(), client.ObjectKey{Namespace: rekeyNamespace, Name: "root-client-ca"}, issuer); err != nil || issuer.Spec.CA.SecretName != "root-client-ca-2" {
		r.t.Errorf("the Issuer that users name has %+v: %v", issuer.Spec.CA, err)
	}
	shown := meta.FindStatusCondition(r.root().Status.Conditions, operatorv1alpha1.ConditionCertificatesRekeyed)
	if shown == nil || shown.Status != metav1.ConditionTrue {
		r.t.Errorf("the condition is %+v", shown)
	}
}

func (r *rekeying) create(object client.Object) {
	r.t.Helper()
	if err := r.Create(r.t.Context(), object); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rekeying) root() *operatorv1alpha1.RootShard {
	r.t.Helper()
	root := &operatorv1alpha1.RootShard{}
	if err := r.Get(r.t.Context(), client.ObjectKey{Namespace: rekeyNamespace, Name: "root"}, root); err != nil {
		r.t.Fatal(err)
	}
	return root
}

func (r *rekeying) deployment(name string) *appsv1.Deployment {
	r.t.Helper()
	deployment := &appsv1.Deployment{}
	if err := r.Get(r.t.Context(), client.ObjectKey{Namespace: rekeyNamespace, Name: name}, deployment); err != nil {
		r.t.Fatal(err)
	}
	return deployment
}

// secret returns a Secret, which is empty if it does not exist.
func (r *rekeying) secret(name string) *corev1.Secret {
	r.t.Helper()
	secret := &corev1.Secret{}
	if err := client.IgnoreNotFound(r.Get(r.t.Context(), client.ObjectKey{Namespace: rekeyNamespace, Name: name}, secret)); err != nil {
		r.t.Fatal(err)
	}
	return secret
}

func (r *rekeying) deleteSecret(name string) {
	r.t.Helper()
	if err := r.Delete(r.t.Context(), r.secret(name)); err != nil {
		r.t.Fatal(err)
	}
}

// kubeconfig returns the certificate in the Secret of the Kubeconfig, or nil.
func (r *rekeying) kubeconfig() []byte {
	r.t.Helper()
	config, err := clientcmd.Load(r.secret("admin").Data["kubeconfig"])
	if err != nil || config.AuthInfos["admin"] == nil {
		return nil
	}
	return config.AuthInfos["admin"].ClientCertificateData
}

// remove deletes the custom resources, so that an operator leaves the namespace alone.
func (r *rekeying) remove() {
	r.t.Helper()
	for _, source := range slices.Backward(append(sources(), moreSources()...)) {
		source.SetNamespace(rekeyNamespace)
		err := errors.Join(r.Delete(r.t.Context(), source),
			client.IgnoreNotFound(r.Patch(r.t.Context(), source, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`)))))
		if err != nil {
			r.t.Fatal(err)
		}
	}
}
