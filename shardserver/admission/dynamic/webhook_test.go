package dynamic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func testWebhookIsolation(t *testing.T, shard *shardtesting.Shard) {
	a, _ := createWorkspace(t, shard, "apart-a")
	b, _ := createWorkspace(t, shard, "apart-b")
	c, _ := createWorkspace(t, shard, "apart-c")
	hookA, hookB := newWebhookServer(t, deny("denied by a")), newWebhookServer(t, deny("denied by b"))
	createValidating(t, a, newValidatingConfiguration("guard", hookA.clientConfig()))
	createValidating(t, b, newValidatingConfiguration("guard", hookB.clientConfig()))

	if refusal := waitDenied(t, a, "in-a"); !strings.Contains(refusal.Error(), "denied by a") || refusal.ErrStatus.Code != http.StatusTeapot {
		t.Errorf("a got %v", refusal)
	}
	if refusal := waitDenied(t, b, "in-b"); !strings.Contains(refusal.Error(), "denied by b") {
		t.Errorf("b got %v", refusal)
	}
	waitCreated(t, c, "in-c")
	for _, name := range hookA.requestNames() {
		if name != "in-a" {
			t.Errorf("a's webhook saw %q", name)
		}
	}
	for _, name := range hookB.requestNames() {
		if name != "in-b" {
			t.Errorf("b's webhook saw %q", name)
		}
	}

	// A deleted configuration has no effect, a changed one has the new effect.
	if err := a.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "guard", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitCreated(t, a, "in-a")
	patch := []byte(`[{"op":"replace","path":"/webhooks/0/rules/0/resources","value":["secrets"]}]`)
	if _, err := b.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.Context(), "guard", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitCreated(t, b, "in-b")
}

func testMutation(t *testing.T, shard *shardtesting.Shard) {
	c, _ := createWorkspace(t, shard, "mutation")
	var validated atomic.Pointer[string]
	check := newWebhookServer(t, func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var object metav1.PartialObjectMetadata
		_ = json.Unmarshal(request.Object.Raw, &object)
		validated.Store(new(object.Labels["team"]))
		return allow(request)
	})
	createValidating(t, c, newValidatingConfiguration("check", check.clientConfig()))
	createMutating(t, c, newMutatingConfiguration("label", newWebhookServer(t, addLabel("team", "blue")).clientConfig()))
	shardtesting.Eventually(t, "the label", func(ctx context.Context) error {
		created, err := dryRunCreate(ctx, c, "labelled", nil)
		if err != nil {
			return err
		}
		if created.Labels["team"] != "blue" || validated.Load() == nil || *validated.Load() != "blue" {
			return fmt.Errorf("labels %v, validated %v", created.Labels, validated.Load())
		}
		return nil
	})
}

// testReinvocation checks that the first webhook sees the label of the second one in its second call only.
func testReinvocation(t *testing.T, shard *shardtesting.Shard) {
	c, _ := createWorkspace(t, shard, "reinvocation")
	again := admissionregistrationv1.IfNeededReinvocationPolicy
	first := newWebhookServer(t, func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if strings.Contains(string(request.Object.Raw), `"second":"yes"`) {
			return addLabel("first", "saw-second")(request)
		}
		return allow(request)
	})
	createMutating(t, c, newMutatingConfiguration("a-first", first.clientConfig(), func(w *admissionregistrationv1.MutatingWebhook) { w.ReinvocationPolicy = &again }))
	createMutating(t, c, newMutatingConfiguration("b-second", newWebhookServer(t, addLabel("second", "yes")).clientConfig()))
	shardtesting.Eventually(t, "both labels", func(ctx context.Context) error {
		created, err := dryRunCreate(ctx, c, "twice", nil)
		if err != nil {
			return err
		}
		if created.Labels["first"] != "saw-second" || created.Labels["second"] != "yes" {
			return fmt.Errorf("labels %v", created.Labels)
		}
		return nil
	})
}

func testFailurePolicies(t *testing.T, shard *shardtesting.Shard) {
	gone := newWebhookServer(t, allow)
	gone.Close()
	ignore, fail := admissionregistrationv1.Ignore, admissionregistrationv1.Fail
	t.Run("ignored", func(t *testing.T) {
		c, _ := createWorkspace(t, shard, "failure-ignored")
		denies := newWebhookServer(t, deny("later"))
		createValidating(t, c, newValidatingConfiguration("a-gone", gone.clientConfig(), func(w *admissionregistrationv1.ValidatingWebhook) { w.FailurePolicy = &ignore }))
		createValidating(t, c, newValidatingConfiguration("b-denies", denies.clientConfig()))
		if refusal := waitDenied(t, c, "x"); !strings.Contains(refusal.Error(), "later") {
			t.Errorf("got %v", refusal)
		}
		if err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "b-denies", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitCreated(t, c, "x")
	})
	t.Run("fatal", func(t *testing.T) {
		c, _ := createWorkspace(t, shard, "failure-fatal")
		createValidating(t, c, newValidatingConfiguration("gone", gone.clientConfig(), func(w *admissionregistrationv1.ValidatingWebhook) { w.FailurePolicy = &fail }))
		if refusal := waitDenied(t, c, "x"); !apierrors.IsInternalError(refusal) || !strings.Contains(refusal.Error(), "failed calling webhook") {
			t.Errorf("got %v", refusal)
		}
	})
	t.Run("service reference", func(t *testing.T) {
		c, _ := createWorkspace(t, shard, "failure-service")
		service := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "kubernetes", Namespace: "default"}}
		createValidating(t, c, newValidatingConfiguration("service", service))
		if refusal := waitDenied(t, c, "x"); !strings.Contains(refusal.Error(), "no services") {
			t.Errorf("got %v", refusal)
		}
	})
	t.Run("server certificate of another CA", func(t *testing.T) {
		c, _ := createWorkspace(t, shard, "failure-trust")
		other, _ := createWorkspace(t, shard, "failure-trusted")
		server := newWebhookServer(t, deny("reached"))
		createValidating(t, other, newValidatingConfiguration("trusting", server.clientConfig()))
		_ = waitDenied(t, other, "x")
		config := server.clientConfig()
		config.CABundle = nil
		createValidating(t, c, newValidatingConfiguration("without", config))
		if refusal := waitDenied(t, c, "x"); strings.Contains(refusal.Error(), "reached") || !strings.Contains(refusal.Error(), "x509") {
			t.Errorf("got %v", refusal)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		c, _ := createWorkspace(t, shard, "failure-slow")
		release := make(chan struct{})
		slow := newWebhookServer(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { <-release; return allow(r) })
		t.Cleanup(func() { close(release) })
		second := int32(1)
		createValidating(t, c, newValidatingConfiguration("slow", slow.clientConfig(), func(w *admissionregistrationv1.ValidatingWebhook) { w.TimeoutSeconds = &second }))
		if refusal := waitDenied(t, c, "x"); !strings.Contains(refusal.Error(), "deadline exceeded") {
			t.Errorf("got %v", refusal)
		}
	})
}

func testHostileWebhooks(t *testing.T, shard *shardtesting.Shard) {
	reached := newWebhookServer(t, allow)
	for name, tc := range map[string]struct {
		serve   http.HandlerFunc
		wantErr string
	}{
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, reached.URL+"/review", http.StatusTemporaryRedirect)
		}, "redirects"},
		"secret": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "inner secret", http.StatusUnauthorized)
		}, "failed calling webhook"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			chunk := []byte(strings.Repeat(" ", 1<<16))
			for range 1 << 10 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := createWorkspace(t, shard, "hostile-"+name)
			var headers atomic.Pointer[http.Header]
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				headers.Store(&r.Header)
				tc.serve(w, r)
			}))
			t.Cleanup(server.Close)
			config := (&webhookServer{Server: server}).clientConfig()
			createValidating(t, c, newValidatingConfiguration("hostile", config))
			refusal := waitDenied(t, c, "x")
			if !strings.Contains(refusal.Error(), tc.wantErr) || strings.Contains(refusal.Error(), "inner secret") {
				t.Errorf("got %v", refusal)
			}
			for header := range *headers.Load() {
				if !slices.Contains([]string{"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "User-Agent", "Kubernetes-Retry-Attempt"}, header) {
					t.Errorf("the webhook got header %s", header)
				}
			}
		})
	}
	if seen := reached.requestNames(); len(seen) > 0 {
		t.Errorf("the webhook followed a redirect: %v", seen)
	}
	t.Run("invalid status code", func(t *testing.T) {
		c, _ := createWorkspace(t, shard, "hostile-status")
		createValidating(t, c, newValidatingConfiguration("odd", newWebhookServer(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "odd", Code: 99999}}
		}).clientConfig()))
		if refusal := waitDenied(t, c, "x"); refusal.ErrStatus.Code != http.StatusBadRequest || !strings.Contains(refusal.Error(), "odd") {
			t.Errorf("got %v", refusal)
		}
	})
}

// testConfigurationsAreExempt checks that webhook configurations are not subject to webhooks, so that users can always
// repair them.
func testConfigurationsAreExempt(t *testing.T, shard *shardtesting.Shard) {
	c, _ := createWorkspace(t, shard, "exempt")
	all := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
	createValidating(t, c, newValidatingConfiguration("everything", newWebhookServer(t, deny("no")).clientConfig(), func(w *admissionregistrationv1.ValidatingWebhook) { w.Rules = all }))
	_ = waitDenied(t, c, "x")
	if err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "everything", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitCreated(t, c, "x")
}

func testSelectorsAndConditions(t *testing.T, shard *shardtesting.Shard) {
	a, clusterA := createWorkspace(t, shard, "selectors-a")
	b, _ := createWorkspace(t, shard, "selectors-b")
	// The namespaces have the same name and different labels.
	labelNamespace(t, a, "watched")
	labelNamespace(t, b, "free")
	denies := newWebhookServer(t, deny("selected"))
	selecting := func(w *admissionregistrationv1.ValidatingWebhook) {
		w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"mode": "watched"}}
		w.MatchConditions = []admissionregistrationv1.MatchCondition{
			{Name: "named", Expression: `object.metadata.name.startsWith("match")`},
			{Name: "may", Expression: `authorizer.group("").resource("secrets").namespace("default").check("get").allowed()`},
		}
	}
	createValidating(t, a, newValidatingConfiguration("selecting", denies.clientConfig(), selecting))
	createValidating(t, b, newValidatingConfiguration("selecting", denies.clientConfig(), selecting))
	_ = waitDenied(t, a, "match-in-a")
	if _, err := dryRunCreate(t.Context(), a, "other-in-a", nil); err != nil {
		t.Errorf("the condition does not match, but the request was denied: %v", err)
	}
	if _, err := dryRunCreate(t.Context(), b, "match-in-b", nil); err != nil {
		t.Errorf("the namespace is not selected in b, but the request was denied: %v", err)
	}
	// A condition authorizes the user of the request in the workspace of the request: a user without permission for
	// secrets.
	user := newRestrictedClient(t, shard, a, clusterA, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
	shardtesting.Eventually(t, "the permission to create config maps", func(ctx context.Context) error {
		_, err := dryRunCreate(ctx, user, "match-by-user", nil)
		return err
	})
}

func testClusterAnnotation(t *testing.T, shard *shardtesting.Shard) {
	c, cluster := createWorkspace(t, shard, "annotation")
	records := newWebhookServer(t, allow)
	createValidating(t, c, newValidatingConfiguration("records", records.clientConfig()))
	shardtesting.Eventually(t, "a call of the webhook", func(ctx context.Context) error {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Annotations: map[string]string{"kcp.io/cluster": "root"}}}
		created, err := c.CoreV1().ConfigMaps("default").Create(ctx, configMap, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if len(records.requestNames()) == 0 {
			return fmt.Errorf("not called")
		}
		if created.Annotations["kcp.io/cluster"] != cluster {
			return fmt.Errorf("stored with %v", created.Annotations)
		}
		return nil
	})
	records.mu.Lock()
	defer records.mu.Unlock()
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(records.reviews[0].Object.Raw, &object); err != nil || object.Annotations["kcp.io/cluster"] != cluster {
		t.Errorf("the webhook saw %v, %v", object.Annotations, err)
	}
}

func testDryRun(t *testing.T, shard *shardtesting.Shard) {
	c, _ := createWorkspace(t, shard, "dry-run")
	some := admissionregistrationv1.SideEffectClassNoneOnDryRun
	records := newWebhookServer(t, allow)
	createValidating(t, c, newValidatingConfiguration("records", records.clientConfig(), func(w *admissionregistrationv1.ValidatingWebhook) { w.SideEffects = &some }))
	shardtesting.Eventually(t, "the dry run to be visible to the webhook", func(ctx context.Context) error {
		if _, err := dryRunCreate(ctx, c, "x", nil); err != nil {
			return err
		}
		records.mu.Lock()
		defer records.mu.Unlock()
		if len(records.reviews) == 0 || records.reviews[0].DryRun == nil || !*records.reviews[0].DryRun {
			return fmt.Errorf("got %v", records.reviews)
		}
		return nil
	})
}

// testOwnRequests checks that service accounts of new namespaces, which a controller of the shard creates, are created
// in one workspace while a webhook of another workspace hangs.
func testOwnRequests(t *testing.T, shard *shardtesting.Shard) {
	bad, _ := createWorkspace(t, shard, "hanging")
	good, _ := createWorkspace(t, shard, "hanging-not")
	release := make(chan struct{})
	var waiting, most atomic.Int64
	hangs := newWebhookServer(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		now := waiting.Add(1)
		defer waiting.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		<-release
		return allow(r)
	})
	t.Cleanup(func() { close(release) })
	createValidating(t, bad, newValidatingConfiguration("hangs", hangs.clientConfig(), func(w *admissionregistrationv1.ValidatingWebhook) {
		w.Rules = []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"serviceaccounts"}},
		}}
	}))
	shardtesting.Eventually(t, "a request to the hanging webhook", func(ctx context.Context) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "many-"}}
		if _, err := bad.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
		if waiting.Load() == 0 {
			return fmt.Errorf("no request waits")
		}
		return nil
	})
	for i := range 20 {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("more-", i)}}
		if _, err := bad.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	started := time.Now()
	if _, err := good.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the service account of the other workspace", func(ctx context.Context) error {
		_, err := good.CoreV1().ServiceAccounts("mine").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if took := time.Since(started); took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
	if most.Load() > 2 {
		t.Errorf("%d of the shard's own requests waited at once", most.Load())
	}
}
