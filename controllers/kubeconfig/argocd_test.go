package kubeconfig

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
)

// registration is a Kubeconfig whose Secret is written, in a cluster with Argo CD.
type registration struct {
	*testing.T
	cluster    apply.Cluster
	kubeconfig *operatorv1alpha1.Kubeconfig
	namespace  string // of Argo CD
}

func newRegistration(t *testing.T, objects ...client.Object) *registration {
	k := &operatorv1alpha1.Kubeconfig{
		ObjectMeta: metav1.ObjectMeta{Name: "team", Namespace: "kcp", UID: "1"},
		Spec: operatorv1alpha1.KubeconfigSpec{TargetWorkspace: "root:team", ArgoCD: &operatorv1alpha1.KubeconfigArgoCD{
			Project: "team", Labels: map[string]string{"stage": "test", "argocd.argoproj.io/secret-type": "repository"},
		}},
	}
	return &registration{t, apply.Cluster{Client: memory.NewClient(t, append(objects, k)...)}, k, "argocd"}
}

// pass runs the step, or that of a deletion, twice: the first run only records the Secret that the second one creates.
func (r *registration) pass(deleted bool) status.Result {
	r.Helper()
	var result status.Result
	for range 2 {
		if err := r.cluster.Get(r.Context(), client.ObjectKeyFromObject(r.kubeconfig), r.kubeconfig); err != nil {
			r.Fatal(err)
		}
		before := r.kubeconfig.DeepCopy()
		s := &scope{
			config: reconcile.Config{Cluster: r.cluster, ArgoCDNamespace: r.namespace}, report: &status.Report{}, kubeconfig: r.kubeconfig,
			target: &target{root: &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}},
			user:   &desired.UserKubeconfig{User: "argocd", Server: "https://kcp.example.com:443", Workspace: "root:team", CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key")},
		}
		step := s.registerInArgoCD
		if deleted {
			step = s.unregister
		}
		if err := step(r.Context()); err != nil {
			r.Fatal(err)
		}
		before.SetFinalizers(r.kubeconfig.Finalizers)
		before.SetResourceVersion(r.kubeconfig.ResourceVersion)
		if _, err := r.cluster.WriteStatus(r.Context(), before, r.kubeconfig); err != nil {
			r.Fatal(err)
		}
		result = s.report.Get(registered)
	}
	return result
}

func (r *registration) secret() *corev1.Secret {
	r.Helper()
	secret, err := apply.Get[corev1.Secret](r.Context(), r.cluster, "argocd", "kubeconfig.kcp.team")
	if err != nil {
		r.Fatal(err)
	}
	return secret
}

func TestRegisteredInArgoCD(t *testing.T) {
	r := newRegistration(t)
	if result := r.pass(false); result.State != status.Satisfied {
		t.Fatalf("got %+v", result)
	}
	secret := r.secret()
	if secret == nil {
		t.Fatal("there is no Secret")
	}
	if secret.Labels["argocd.argoproj.io/secret-type"] != "cluster" || secret.Labels["stage"] != "test" {
		t.Errorf("labels are %v", secret.Labels)
	}
	var config struct {
		TLSClientConfig struct{ CAData, CertData, KeyData []byte } `json:"tlsClientConfig"`
	}
	if err := json.Unmarshal(secret.Data["config"], &config); err != nil || string(config.TLSClientConfig.CAData) != "ca" || string(config.TLSClientConfig.KeyData) != "key" {
		t.Errorf("config is %s: %v", secret.Data["config"], err)
	}
	for key, want := range map[string]string{"name": "root:team", "server": "https://kcp.example.com:443/clusters/root:team", "project": "team"} {
		if got := string(secret.Data[key]); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if got := r.kubeconfig.Finalizers; len(got) != 1 || got[0] != operatorv1alpha1.FinalizerKubeconfigArgoCD {
		t.Errorf("finalizers are %v", got)
	}
}

func TestUnregistered(t *testing.T) {
	for name, change := range map[string]func(*registration) (deleted bool){
		"when the Kubeconfig is deleted": func(*registration) bool { return true },
		"when the field is removed": func(r *registration) bool {
			r.kubeconfig.Spec.ArgoCD = nil
			if err := r.cluster.Update(r.Context(), r.kubeconfig); err != nil {
				r.Fatal(err)
			}
			return false
		},
		"when the operator has no namespace any more": func(r *registration) bool { r.namespace = ""; return false },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistration(t)
			r.pass(false)
			r.pass(change(r))
			if r.secret() != nil || len(r.kubeconfig.Finalizers) > 0 {
				t.Errorf("left are a Secret: %v, and finalizers %v", r.secret() != nil, r.kubeconfig.Finalizers)
			}
		})
	}
}

func TestForeignClusterOfArgoCDStays(t *testing.T) {
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "kubeconfig.kcp.team"}, Data: map[string][]byte{"name": []byte("foreign")}}
	r := newRegistration(t, foreign)
	if result := r.pass(false); result.State != status.Stalled || result.Reason != "SecretTaken" {
		t.Errorf("got %+v", result)
	}
	r.pass(true)
	if secret := r.secret(); secret == nil || string(secret.Data["name"]) != "foreign" {
		t.Errorf("the foreign Secret is %v", secret)
	}
}

func TestRefreshIsRequestedWhenAPIsChange(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const before, requested = "2026-01-01T00:00:00Z", "2026-01-02T03:05:05Z"
	for name, tc := range map[string]struct {
		existing map[string]string // nil is a new Secret
		apis     string
		want     map[string]string
	}{
		"a new Secret requests nothing":                   {nil, "one", map[string]string{annotationAPIs: "one"}},
		"the same APIs request nothing":                   {map[string]string{annotationAPIs: "one", annotationRefresh: before}, "one", map[string]string{annotationAPIs: "one", annotationRefresh: before}},
		"other APIs request a refresh":                    {map[string]string{annotationAPIs: "one", annotationRefresh: before}, "two", map[string]string{annotationAPIs: "two", annotationRefresh: requested}},
		"a workspace that was not readable is refreshed":  {map[string]string{}, "one", map[string]string{annotationAPIs: "one", annotationRefresh: requested}},
		"a workspace that is not readable stays as it is": {map[string]string{annotationAPIs: "one", annotationRefresh: before}, "", map[string]string{annotationAPIs: "one", annotationRefresh: before}},
		"a request of a user stays":                       {map[string]string{annotationAPIs: "one", annotationRefresh: "2026-01-02T00:00:00Z", "other": "x"}, "one", map[string]string{annotationAPIs: "one", annotationRefresh: "2026-01-02T00:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			var existing *corev1.Secret
			if tc.existing != nil {
				existing = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: tc.existing}}
			}
			if got := refreshAnnotations(existing, tc.apis, now); !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAPIsOfNoPathAreNotRead(t *testing.T) {
	for _, workspace := range []string{"", "*", "root:../x"} {
		s := &scope{user: &desired.UserKubeconfig{Workspace: workspace}} // without a cluster, so that a request would panic
		if apis := s.servedAPIs(t.Context()); apis != "" {
			t.Errorf("%q has APIs %q", workspace, apis)
		}
	}
}
