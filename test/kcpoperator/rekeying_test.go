package kcpoperator

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/atoll-dev/atoll/controllers/shard"
	"github.com/atoll-dev/atoll/controllers/shardclient"
	"github.com/atoll-dev/atoll/controllers/virtualworkspace"
)

const rekeyNamespace = "rekey"

// errKilled is the error of a write of an operator that is killed before it.
var errKilled = errors.New("killed")

// consumers are the certificates of a CA outside of pods, by which the test follows a re-keying.
type consumers struct {
	secrets []string // of Certificates of the operator that no pod mounts
	mine    string   // a Certificate of the user, of which somebody has a copy
	blocker string   // what the re-keying asks the user for
}

var consumersOf = map[desired.CA]consumers{
	desired.ClientCA:        {[]string{"root-kcp-operator"}, "mine", "give them new kubeconfigs, then set retireGeneration of client-ca"},
	desired.RequestHeaderCA: {[]string{"alpha-mounts-proxy"}, "my-proxy", "give them new certificates, then set retireGeneration of requestheader-client-ca"},
}

// rekeying is an installation with all kinds of servers, whose reconcilers run one after another in random order. Each write may be the last
// one of its reconcile. After each event, every server has to accept every client certificate, and every one of a proxy, that is in use.
type rekeying struct {
	*env
	t           *testing.T
	now         time.Time
	random      *rand.Rand
	reconcilers []func(context.Context) error
	certManager certManager
	pods        pods
	entries     map[desired.CA]string // of the spec
	copies      map[desired.CA][]byte // certificates of which the operator does not know that they are in use
	tokens      map[string]string     // keys that tokens in use are signed with, by what they are; nil before the re-keying of these keys
	killed      int
	rounds      int
	changed     bool // since the last check
}

func (e *env) newRekeying(t *testing.T) *rekeying {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	r := &rekeying{env: e, t: t, now: time.Now(), random: rand.New(rand.NewPCG(1, 2)), entries: map[desired.CA]string{}, copies: map[desired.CA][]byte{}}
	r.certManager = certManager{Client: e.Client, namespace: rekeyNamespace}
	r.pods = pods{Client: e.Client, namespace: rekeyNamespace, running: map[string]files{}}
	r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rekeyNamespace}})
	for _, source := range append(sources(), moreSources()...) {
		source.SetNamespace(rekeyNamespace)
		auth := &operatorv1alpha1.AuthSpec{ServiceAccount: &operatorv1alpha1.ServiceAccountAuthentication{Enabled: true}}
		switch source := source.(type) {
		case *operatorv1alpha1.RootShard:
			source.Spec.Certificates.IssuerRef, source.Spec.Auth = nil, auth
		case *operatorv1alpha1.Shard:
			source.Spec.Auth = auth
		case *operatorv1alpha1.FrontProxy:
			source.Spec.Auth = auth
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

// moreSources are a virtual workspace server, the kubeconfig of a user, and certificates that a user has from the CAs.
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
		&certmanagerv1.Certificate{ObjectMeta: meta("my-proxy"), Spec: certmanagerv1.CertificateSpec{
			SecretName: "my-proxy", CommonName: "kcp-front-proxy", Usages: []certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth},
			IssuerRef: cmmeta.IssuerReference{Name: "root-requestheader-client-ca", Kind: certmanagerv1.IssuerKind},
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

// until lets the installation continue until the record of a CA has a state, and returns it. Two minutes pass with each round.
func (r *rekeying) until(what string, ca desired.CA, reached func(*operatorv1alpha1.CertificateAuthorityStatus) bool) *operatorv1alpha1.CertificateAuthorityStatus {
	r.t.Helper()
	for range 300 {
		root := r.root()
		if state := desired.CAState(root, ca); state != nil && reached(state) {
			r.t.Logf("%s: %s after %d rounds", ca, what, r.rounds)
			return state
		}
		r.round()
	}
	root := r.root()
	r.t.Fatalf("%s: %s: not within 300 rounds: %+v; %+v", ca, what, desired.CAState(root, ca), root.Status.Conditions)
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
	r.changed = false
	for ca, consumers := range consumersOf {
		others := map[string][]byte{}
		for _, name := range append(consumers.secrets, consumers.mine) {
			if file := r.secret(name).Data[corev1.TLSCertKey]; len(file) > 0 {
				others["Secret "+name] = file
			}
		}
		if file := r.kubeconfig(); file != nil && ca == desired.ClientCA {
			others["the kubeconfig"] = file
		}
		if r.copies[ca] != nil {
			others["a copy"] = r.copies[ca]
		}
		if err := r.pods.check(ca, others); err != nil {
			r.t.Fatalf("%s in %+v: %v", ca, desired.CAState(r.root(), ca), err)
		}
	}
	if r.tokens != nil {
		if err := r.pods.checkTokens(r.tokens); err != nil {
			r.t.Fatalf("in %+v: %v", desired.CAState(r.root(), desired.ServiceAccountKeys), err)
		}
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
