package infrastructure_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestSlowWebhookOfTenant checks that a tenant whose webhook for Secrets times out occupies only a few workers, and that a condition of its
// instances explains why they have no connection.
func TestSlowWebhookOfTenant(t *testing.T) {
	e := newInstancesEnv(t)
	for _, tenant := range []string{e.tenant, e.second} {
		e.answerClaims(t, tenant, apisv1alpha2.ClaimAccepted)
	}
	var now, most atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// The server detects that the caller has disconnected only after the request is read.
		_, _ = io.Copy(io.Discard, r.Body)
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		<-r.Context().Done()
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	e.addWebhook(t, e.tenant, server)
	const many = 20
	for i := range many {
		shardtesting.Eventually(t, "instances to be served", func(ctx context.Context) error {
			_, err := e.of(e.tenant).inTenant(t, "redis").Create(ctx, newInstance(fmt.Sprint("slow", i), "small"), metav1.CreateOptions{})
			return err
		})
	}
	for i := range 3 {
		e.provision(t, e.second, fmt.Sprint("late", i), "small")
		e.waitConnection(t, e.second, fmt.Sprint("late", i), "Available")
	}
	e.waitConnection(t, e.tenant, "slow0", "SecretRefused")
	// Two concurrent requests, and as many that have just ended.
	if got := most.Load(); got == 0 || got > 4 {
		t.Errorf("one tenant occupies %d workers", got)
	}
}

// addWebhook makes a workspace call a server for each write of a Secret, and waits until it does.
func (e *instancesEnv) addWebhook(t *testing.T, tenant string, server *httptest.Server) {
	t.Helper()
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "slow.example.org", FailurePolicy: ptr.To(admissionv1.Fail), SideEffects: ptr.To(admissionv1.SideEffectClassNone),
		TimeoutSeconds: ptr.To[int32](30), AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To(server.URL + "/hook"), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
		}},
	}}}
	c := e.inWorkspace(t, tenant)
	if err := c.Create(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the webhook to apply", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		if err := c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}, client.DryRunAll); err == nil {
			return errors.New("it does not")
		}
		return nil
	})
}

// unreachableAtFirst is a backend whose first discovery requests to a server fail.
type unreachableAtFirst struct {
	*stub.Backend
	failures, left atomic.Int64
}

type roundTripper func(*http.Request) (*http.Response, error)

func (rt roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return rt(r) }

// Run implements backend.Backend.
func (u *unreachableAtFirst) Run(ctx context.Context, workspace *rest.Config) error {
	workspace.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			isDiscovery := strings.HasSuffix(r.URL.Path, "/api") || strings.HasSuffix(r.URL.Path, "/apis")
			if isDiscovery && u.left.Add(-1) >= 0 {
				u.failures.Add(1)
				return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
			}
			return next.RoundTrip(r)
		})
	})
	return u.Backend.Run(ctx, workspace)
}

// TestProviderUnreachableAtFirst checks that a backend retries if it cannot read the provider's workspace when it starts: its Templates become
// ready.
func TestProviderUnreachableAtFirst(t *testing.T) {
	e := newWorkspaces(t)
	b := &unreachableAtFirst{Backend: stub.NewServing(stub.Config{Name: "kro", Group: group, Export: export, Runtime: stub.NewRuntime(), SweepInterval: time.Minute, Log: klog.Background()})}
	b.left.Store(2)
	e.run(t, &instance.View{Workspace: e.workspace(t), Client: e.c, Export: export}, b)
	e.create(t, newTemplate("redis", "Redis", func(t *infrastructurev1alpha1.Template) {
		t.Spec.Backend, t.Spec.BackendConfig = "kro", &runtime.RawExtension{Raw: []byte(`{"outputs":["size"]}`)}
	}))
	e.ready(t, "redis")
	e.shard.Bind(t, e.tenant, e.provider, export)
	shardtesting.Eventually(t, "instances to be served", func(ctx context.Context) error {
		_, err := e.inTenant(t, "redis").Create(ctx, newInstance("mine", "small"), metav1.CreateOptions{})
		return err
	})
	(&instancesEnv{env: e}).waitPhase(t, e.tenant, "mine", infrastructurev1alpha1.PhaseReady)
	if b.failures.Load() == 0 {
		t.Error("no request has failed")
	}
}
