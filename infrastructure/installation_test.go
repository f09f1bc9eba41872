package infrastructure_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/web"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// canary is in everything that no response may contain.
const canary = "canary-7c1d"

// hostCluster is a workspace with definitions of the operator, which the web server reads as the host cluster of an installation.
type hostCluster struct {
	admin  client.Client
	config *rest.Config // of a service account
}

func newHostCluster(t *testing.T, e *env) *hostCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, operatorv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := shardtesting.At(e.shard.Admin(t), e.shard.NewWorkspace(t, "root", "host").Spec.Cluster)
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostCluster{admin: admin}
	for _, resource := range []string{"backupstores", "kubeconfigs"} {
		text, err := os.ReadFile("../config/crd/bases/operator.kcp.io_" + resource + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, definition); err != nil {
			t.Fatal(err)
		}
		h.create(t, definition)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp", Name: "console"}}
	h.create(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, account,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp", Name: "credentials"}, StringData: map[string]string{"key": canary}},
		// The rights are more than the documented ones, so that what is refused is refused by the web server.
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "console"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", "operator.kcp.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
			{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "console"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "console"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kcp", Name: "console"}},
		},
		newStore("kcp", "one"), newStore("other", canary),
	)
	request := &authenticationv1.TokenRequest{}
	if err := admin.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	h.config = rest.AnonymousClientConfig(config)
	h.config.BearerToken = request.Status.Token
	return h
}

// create creates objects, once their kinds are served and their namespaces exist.
func (h *hostCluster) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		shardtesting.Eventually(t, object.GetName()+" to be created", func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(h.admin.Create(ctx, object))
		})
	}
}

func newStore(namespace, name string) *operatorv1alpha1.BackupStore {
	return &operatorv1alpha1.BackupStore{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: operatorv1alpha1.BackupStoreSpec{
			EndpointURL: "https://s3.example.org", Bucket: "backups",
			S3Credentials: operatorv1alpha1.S3Credentials{
				AccessKeyID:     operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"},
				SecretAccessKey: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "key"},
			},
			Encryption: operatorv1alpha1.BackupEncryption{Recipients: []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}},
		},
	}
}

// serveInstallation runs a web server that reads the host cluster.
func (e *webEnv) serveInstallation(t *testing.T, host *rest.Config) string {
	t.Helper()
	server, err := web.Listen("127.0.0.1:0", "", "", web.Config{
		FrontProxy: e.shard.Admin(t), Installation: &web.Installation{Host: host, Namespace: "kcp"}, Limits: web.DefaultLimits(), Log: klog.Background(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the web server ended: %v", err)
		}
	})
	return "http://" + server.Addr().String()
}

// open sends a request as a user, with further headers as pairs of name and value.
func open(t *testing.T, method, url, user, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		req.Header.Set("Authorization", "Bearer "+tokenOf(user))
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// testInstallation: users whom root allows that read the objects of one namespace, and nobody reads anything else.
func (e *webEnv) testInstallation(t *testing.T) {
	h := newHostCluster(t, e.env)
	url := e.serveInstallation(t, h.config)
	// bob may read in root, but nothing of the installation; reader may read stores and kubeconfigs, which are served to nobody.
	e.grant(t, "root", "bob", rbacv1.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}},
		rbacv1.PolicyRule{APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspaces"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{"operator.kcp.io"}, Resources: []string{"backupstores"}, ResourceNames: []string{"one"}, Verbs: []string{"*"}})
	e.grant(t, "root", "reader", rbacv1.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}},
		rbacv1.PolicyRule{APIGroups: []string{"operator.kcp.io"}, Resources: []string{"backupstores", "kubeconfigs", "restores"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{"operator.kcp.io"}, Resources: []string{"backupstores"}, Verbs: []string{"watch"}})
	const stores = "/installation/backupstores"
	for _, test := range []struct {
		user, method, path, body string
		header                   []string
		code                     int
		want                     string
	}{
		{user: "reader", path: stores, code: 200, want: `"name":"one"`},
		{user: "reader", path: stores + "?limit=1000000", code: 200, want: `"name":"one"`},
		// Who may not read it: tenants, also as administrators of their workspaces, and whoever has other rights in root.
		{user: "", path: stores, code: 401, want: "a bearer token is required"},
		{user: "of-nobody", path: stores, code: 401, want: "the workspace root does not accept the token"},
		{user: "nobody", path: stores, code: 403, want: "this needs the right to list backupstores.operator.kcp.io in the workspace root"},
		{user: "alice", path: stores, code: 403, want: "in the workspace root"},
		{user: "bob", path: stores, code: 403, want: "in the workspace root"},
		{user: "alice", path: stores + "?watch=true", code: 403, want: "the right to watch"},
		{user: "reader", path: "/installation/rootshards", code: 403, want: "the right to list rootshards"},
		{user: "reader", path: "/installation/restores?watch=1", code: 403, want: "the right to watch restores"},
		{user: "alice", path: stores, header: []string{"Impersonate-User", "reader", "X-Remote-User", "reader", "X-Remote-Group", "system:masters"}, code: 403},
		{user: "alice", path: stores, header: []string{"Impersonate-Group", "system:masters"}, code: 403},
		// What nobody reads
		{user: "reader", path: "/installation/kubeconfigs", code: 404, want: "only kinds of the operator"},
		{user: "reader", path: "/installation/secrets", code: 404, want: "only kinds of the operator"},
		{user: "reader", path: "/installation/pods", code: 404},
		{user: "reader", path: "/installation/BackupStores", code: 404},
		{user: "reader", path: "/installation/", code: 404},
		{user: "reader", path: "/installation", code: 404},
		{user: "reader", path: stores + "/", code: 404},
		{user: "reader", path: stores + "/one", code: 404},
		{user: "reader", path: stores + "/one/status", code: 404},
		{user: "reader", path: "/installation/apis/operator.kcp.io/v1alpha1/backupstores", code: 404},
		{user: "reader", path: "/installation/api/v1/namespaces/kcp/secrets", code: 404},
		{user: "reader", path: "/installation/backupstores%2f..%2f..%2fsecrets", code: 400, want: "escaped slashes"},
		{user: "reader", path: "/installation/..%2fsecrets", code: 400},
		{user: "reader", path: "/installation/../installation/secrets", code: 400},
		{user: "reader", path: "/installation/%2e%2e/%2e%2e/api/v1/secrets", code: 400},
		{user: "reader", path: "/installation//backupstores", code: 400},
		{user: "reader", path: "/installation/backupstores%3Fnamespace=other", code: 404},
		{user: "reader", path: "/installation/backupstores%00", code: 400},
		// Parameters
		{user: "reader", path: stores + "?namespace=other", code: 400, want: `the parameter \"namespace\" is not served here`},
		{user: "reader", path: stores + "?follow=true", code: 400, want: "is not served here"},
		{user: "reader", path: stores + "?limit=0", code: 400, want: "expected a number from 1"},
		{user: "reader", path: stores + "?limit=1&limit=2", code: 400, want: "occurs 2 times, expected once"},
		{user: "reader", path: stores + "?watch=1&timeoutSeconds=long", code: 400, want: "expected a number from 1"},
		{user: "reader", path: stores + "?continue=forged", code: 400, want: "the host cluster does not accept the parameters"},
		{user: "reader", path: stores + "?limit=%", code: 400, want: "the query cannot be parsed"},
		{user: "reader", path: "/installation/restores", code: 404, want: "the host cluster does not have this kind"},
		// Methods
		{user: "reader", method: "HEAD", path: stores, code: 405},
		{user: "reader", method: "OPTIONS", path: stores, code: 405},
		{user: "reader", method: "POST", path: stores, body: `{"apiVersion":"operator.kcp.io/v1alpha1","kind":"BackupStore","metadata":{"name":"two"}}`, code: 405},
		{user: "reader", method: "PUT", path: stores, body: "{}", code: 405},
		{user: "reader", method: "PATCH", path: stores, body: "{}", header: []string{"Content-Type", "application/merge-patch+json"}, code: 405},
		{user: "reader", method: "DELETE", path: stores, code: 405},
		{user: "reader", path: stores, header: []string{"X-Http-Method-Override", "DELETE"}, code: 200},
		{user: "reader", path: stores, body: `{"kind":"DeleteOptions"}`, code: 200},
	} {
		method := test.method
		if method == "" {
			method = http.MethodGet
		}
		res := open(t, method, url+test.path, test.user, test.body, test.header...)
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != test.code || !strings.Contains(string(text), test.want) {
			t.Errorf("%s %s as %q %q: got %d %s, want %d %q", method, test.path, test.user, test.header, res.StatusCode, text, test.code, test.want)
		}
		for _, hidden := range []string{canary, h.config.BearerToken, "serviceaccount:"} {
			if strings.Contains(string(text), hidden) {
				t.Errorf("%s %s as %q: the response has %q: %s", method, test.path, test.user, hidden, text)
			}
		}
	}
	if res := open(t, http.MethodGet, e.url+stores, "reader", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("a server without a host cluster answers %s", res.Status)
	}
	e.testNamesake(t, url+stores)
	e.testInstallationWatch(t, h, url)
	e.testInstallationFails(t, h)

	// A right that is taken away ends with the next request: nothing remembers it.
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}
	if err := e.inWorkspace(t, "root").Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the right to be gone", func(context.Context) error {
		if res := open(t, http.MethodGet, url+stores, "reader", ""); res.StatusCode != http.StatusForbidden {
			return fmt.Errorf("got %s", res.Status)
		}
		return nil
	})
}

// testNamesake: a service account of a tenant has nothing of the one in root that has its name.
func (e *webEnv) testNamesake(t *testing.T, url string) {
	root := e.inWorkspace(t, "root")
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "namesake"}, Rules: []rbacv1.PolicyRule{
			{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}}, {APIGroups: []string{"operator.kcp.io"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "namesake"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "namesake"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "namesake"}},
		},
	} {
		if err := root.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	get := func(cluster string) int {
		c := e.inWorkspace(t, cluster)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "namesake"}}
		if err := c.Create(t.Context(), account); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		request := &authenticationv1.TokenRequest{}
		if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		return open(t, http.MethodGet, url, "", "", "Authorization", "Bearer "+request.Status.Token).StatusCode
	}
	shardtesting.Eventually(t, "the service account of root to read", func(context.Context) error {
		if code := get("root"); code != http.StatusOK {
			return fmt.Errorf("got %d", code)
		}
		return nil
	})
	if code := get(e.tenant); code != http.StatusForbidden && code != http.StatusUnauthorized {
		t.Errorf("the service account of a tenant gets %d", code)
	}
}

// testInstallationWatch: events arrive as they happen, of one namespace only.
func (e *webEnv) testInstallationWatch(t *testing.T, h *hostCluster, url string) {
	list := &operatorv1alpha1.BackupStoreList{}
	if err := h.admin.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	res := open(t, http.MethodGet, fmt.Sprintf("%s/installation/backupstores?watch=1&allowWatchBookmarks=true&timeoutSeconds=100000&resourceVersion=%s", url, list.ResourceVersion), "reader", "")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("got %s", res.Status)
	}
	h.create(t, newStore("other", canary+"-2"), newStore("kcp", "two"))
	events := bufio.NewScanner(res.Body)
	events.Buffer(nil, 1<<20)
	for events.Scan() {
		event := events.Text()
		if strings.Contains(event, canary) {
			t.Fatalf("an event of another namespace: %s", event)
		}
		if strings.Contains(event, `"type":"ADDED"`) && strings.Contains(event, `"name":"two"`) {
			return
		}
	}
	t.Errorf("the watch ended: %v", events.Err())
}

// testInstallationFails: what a caller learns if this server has no rights, or the host cluster is away.
func (e *webEnv) testInstallationFails(t *testing.T, h *hostCluster) {
	stranger, away := rest.AnonymousClientConfig(h.config), rest.CopyConfig(h.config)
	stranger.BearerToken = "not-" + canary
	away.Host = "https://127.0.0.1:1/" + canary
	weak := rest.AnonymousClientConfig(h.config)
	weak.BearerToken = tokenOf("alice")
	for name, test := range map[string]struct {
		host *rest.Config
		code int
		want string
	}{
		"a token that is not valid": {stranger, 403, `"reason":"HostCluster"`},
		"a token without rights":    {weak, 403, "the host cluster does not let this server list them"},
		"away":                      {away, 503, "the host cluster does not answer"},
	} {
		res := open(t, http.MethodGet, e.serveInstallation(t, test.host)+"/installation/backupstores", "reader", "")
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != test.code || !strings.Contains(string(text), test.want) || strings.Contains(string(text), canary) || strings.Contains(string(text), "127.0.0.1") || strings.Contains(string(text), "alice") {
			t.Errorf("%s: got %d %s", name, res.StatusCode, text)
		}
	}
}
