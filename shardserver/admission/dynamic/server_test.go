package dynamic_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// createWorkspace creates a workspace and returns a client for it and the name of its logical cluster.
func createWorkspace(t *testing.T, shard *shardtesting.Shard, name string) (kubernetes.Interface, string) {
	t.Helper()
	cluster := shard.NewWorkspace(t, "root", name).Spec.Cluster
	return shard.Kubernetes(t, shardtesting.At(shard.Admin(t), cluster)), cluster
}

// webhookServer is a webhook server that records its requests.
type webhookServer struct {
	*httptest.Server
	mu      sync.Mutex
	reviews []admissionv1.AdmissionRequest
	headers []http.Header
	respond func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

func newWebhookServer(t *testing.T, answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *webhookServer {
	t.Helper()
	h := &webhookServer{respond: answer}
	h.Server = httptest.NewTLSServer(h)
	t.Cleanup(h.Close)
	return h
}

func (ws *webhookServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err != nil || review.Request == nil {
		http.Error(w, fmt.Sprint("no review: ", err), http.StatusBadRequest)
		return
	}
	ws.mu.Lock()
	ws.reviews = append(ws.reviews, *review.Request)
	ws.headers = append(ws.headers, r.Header.Clone())
	ws.mu.Unlock()
	review.Response = ws.respond(review.Request)
	review.Response.UID = review.Request.UID
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// requestNames returns the names of the objects in the requests to the webhook.
func (ws *webhookServer) requestNames() []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var names []string
	for _, review := range ws.reviews {
		names = append(names, review.Name)
	}
	return names
}

func (ws *webhookServer) clientConfig() admissionregistrationv1.WebhookClientConfig {
	url := ws.URL + "/review"
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ws.Certificate().Raw})
	return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca}
}

func allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func deny(message string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: message, Code: http.StatusTeapot}}
	}
}

// addLabel returns a response that patches a label onto objects.
func addLabel(key, value string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var object metav1.PartialObjectMetadata
		_ = json.Unmarshal(request.Object.Raw, &object)
		labels := map[string]string{key: value}
		for k, v := range object.Labels {
			labels[k] = v
		}
		patch, _ := json.Marshal([]map[string]any{{"op": "add", "path": "/metadata/labels", "value": labels}})
		kind := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: &kind}
	}
}

var configMapsOnly = []admissionregistrationv1.RuleWithOperations{{
	Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
	Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
}}

func newValidatingConfiguration(name string, client admissionregistrationv1.WebhookClientConfig, changes ...func(*admissionregistrationv1.ValidatingWebhook)) *admissionregistrationv1.ValidatingWebhookConfiguration {
	none := admissionregistrationv1.SideEffectClassNone
	webhook := admissionregistrationv1.ValidatingWebhook{
		Name: name + ".example.com", ClientConfig: client, Rules: configMapsOnly, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
	}
	for _, change := range changes {
		change(&webhook)
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{webhook}}
}

func newMutatingConfiguration(name string, client admissionregistrationv1.WebhookClientConfig, changes ...func(*admissionregistrationv1.MutatingWebhook)) *admissionregistrationv1.MutatingWebhookConfiguration {
	none := admissionregistrationv1.SideEffectClassNone
	webhook := admissionregistrationv1.MutatingWebhook{
		Name: name + ".example.com", ClientConfig: client, Rules: configMapsOnly, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
	}
	for _, change := range changes {
		change(&webhook)
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{webhook}}
}

func createValidating(t *testing.T, c kubernetes.Interface, configuration *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	if _, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func createMutating(t *testing.T, c kubernetes.Interface, configuration *admissionregistrationv1.MutatingWebhookConfiguration) {
	t.Helper()
	if _, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// dryRunCreate creates a config map in a dry run.
func dryRunCreate(ctx context.Context, c kubernetes.Interface, name string, labels map[string]string) (*corev1.ConfigMap, error) {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"key": "value"}}
	return c.CoreV1().ConfigMaps("default").Create(ctx, configMap, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// waitDenied waits until the creation of a config map is denied, and returns the error.
func waitDenied(t *testing.T, c kubernetes.Interface, name string) *apierrors.StatusError {
	t.Helper()
	var refusal *apierrors.StatusError
	shardtesting.Eventually(t, "config map "+name+" to be denied", func(ctx context.Context) error {
		_, err := dryRunCreate(ctx, c, name, nil)
		if err == nil {
			return fmt.Errorf("it was created")
		}
		var ok bool
		if refusal, ok = err.(*apierrors.StatusError); !ok {
			return err
		}
		return nil
	})
	return refusal
}

// waitCreated waits until a config map can be created, and returns it.
func waitCreated(t *testing.T, c kubernetes.Interface, name string) *corev1.ConfigMap {
	t.Helper()
	var created *corev1.ConfigMap
	shardtesting.Eventually(t, "config map "+name+" to be created", func(ctx context.Context) (err error) {
		created, err = dryRunCreate(ctx, c, name, nil)
		return err
	})
	return created
}

func labelNamespace(t *testing.T, c kubernetes.Interface, mode string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"mode":%q}}}`, mode)
	if _, err := c.CoreV1().Namespaces().Patch(t.Context(), "default", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// newRestrictedClient returns a client of a user who may access the workspace and has the permissions of the rules
// only.
func newRestrictedClient(t *testing.T, shard *shardtesting.Shard, c kubernetes.Interface, cluster string, rules ...rbacv1.PolicyRule) kubernetes.Interface {
	t.Helper()
	rules = append(rules, rbacv1.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}})
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "restricted"}, Rules: rules}
	if _, err := c.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "restricted"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "user"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "restricted"},
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return shard.Kubernetes(t, shardtesting.At(shard.User(t), cluster))
}
