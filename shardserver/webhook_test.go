package shardserver_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestAuthorizationWebhook: a decision of the webhook for one logical cluster, cached or not, does not apply to
// another. If the webhook is the first authorizer, it decides about requests outside of logical clusters, too.
func TestAuthorizationWebhook(t *testing.T) {
	var mu sync.Mutex
	allowed := "none"
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		review := &authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(req.Body).Decode(review); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		cluster := review.Spec.Extra["authorization.kcp.io/cluster-name"]
		attributes := review.Spec.NonResourceAttributes
		review.Status.Denied = attributes != nil && attributes.Path == "/livez" && review.Spec.User == "system:anonymous"
		review.Status.Allowed = len(cluster) == 1 && cluster[0] == allowed && review.Spec.User == "user"
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer webhook.Close()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["webhook"] = &clientcmdapi.Cluster{Server: webhook.URL}
	kubeconfig.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook"}
	kubeconfig.CurrentContext = "webhook"
	file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	shard := shardtesting.Start(t, func(o *options.Options) {
		o.Authorization.WebhookConfigFile, o.Authorization.WebhookVersion = file, "v1"
		o.Authorization.Order = []string{"Webhook", "AlwaysAllowGroups", "AlwaysAllowPaths", "RBAC"}
	})
	a, b := shard.NewWorkspace(t, "root", "a").Spec.Cluster, shard.NewWorkspace(t, "root", "b").Spec.Cluster
	mu.Lock()
	allowed = a
	mu.Unlock()
	for cluster, want := range map[string]int{a: http.StatusOK, b: http.StatusForbidden, "*": http.StatusForbidden, "system:admin": http.StatusForbidden} {
		if got := getStatus(t, shardtesting.At(shard.User(t), cluster), "/api/v1/namespaces"); got != want {
			t.Errorf("/clusters/%s: got %d, want %d", cluster, got, want)
		}
	}
	for path, want := range map[string]int{"/livez": http.StatusForbidden, "/readyz": http.StatusOK} {
		if got := getStatus(t, rest.AnonymousClientConfig(shard.User(t)), path); got != want {
			t.Errorf("anonymous %s: got %d, want %d", path, got, want)
		}
	}
	if got := getStatus(t, shard.User(t), "/livez"); got != http.StatusOK {
		t.Errorf("/livez of a user: got %d", got)
	}
}
