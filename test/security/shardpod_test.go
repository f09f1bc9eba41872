package security_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authentication"
	"github.com/atoll-dev/atoll/test/installation"
)

const (
	secretsPath    = "/api/v1/namespaces/default/secrets"
	reviewsPath    = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	selfReviewJSON = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	etcdCredential = "etcd-client" // of the shard's own etcd, whose authority signs nothing else
)

// podCertificates returns the certificates whose keys the pod of a shard holds, as the operator renders both. It fails the
// test if the pod has a Secret that is neither one of them nor a kubeconfig of files.
func podCertificates(t *testing.T, shard desired.Shard, cache *operatorv1alpha1.CacheServer) []*certmanagerv1.Certificate {
	t.Helper()
	rendered, err := shard.Render(desired.Image{Repository: "atoll"}, desired.Etcd{Servers: []string{"https://etcd:2379"}, Credentials: etcdCredential},
		desired.Dependencies{Cache: cache, TokenKeys: desired.TokenKeys(shard.Root(), installation.Root, installation.Alpha, installation.Beta)})
	must(t, err)
	certificates := pki.RootShard(shard.Root(), cache)
	certificates.Append(pki.Shard(shard, cache))
	known := map[string]bool{etcdCredential: true}
	for _, object := range rendered.Objects {
		secret, ok := object.(*corev1.Secret)
		if !ok {
			continue
		}
		known[secret.Name] = true
		if file := string(secret.Data[desired.KubeconfigKey]); strings.Contains(file, "-data:") || strings.Contains(file, "token:") {
			t.Errorf("Secret %s has credentials: %s", secret.Name, file)
		}
	}
	if cache != nil {
		known[desired.NewCacheServer(cache).Kubeconfig()] = true
		certificates.Append(pki.CacheServer(cache, nil))
	}
	var held []*certmanagerv1.Certificate
	for _, volume := range rendered.Deployment.Spec.Template.Spec.Volumes {
		if volume.Secret == nil || known[volume.Secret.SecretName] {
			continue
		}
		withKey := len(volume.Secret.Items) == 0 || slices.ContainsFunc(volume.Secret.Items, func(item corev1.KeyToPath) bool { return item.Key != corev1.TLSCertKey })
		at := slices.IndexFunc(certificates.Certificates, func(c *certmanagerv1.Certificate) bool { return c.Spec.SecretName == volume.Secret.SecretName })
		switch {
		case withKey && at >= 0:
			held = append(held, certificates.Certificates[at])
		case withKey:
			t.Errorf("the pod has an unknown Secret %s", volume.Secret.SecretName)
		}
	}
	return held
}

// shardPodUsers returns users with the certificates in the pods of the shard of a: with a cache server, and with the
// cache in the root shard.
func (e *env) shardPodUsers(t *testing.T) []*testUser {
	t.Helper()
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: installation.Root, Namespace: "kcp"}}
	object := &operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: e.placement.a, Namespace: "kcp"}}
	object.Spec.Auth = &operatorv1alpha1.AuthSpec{ServiceAccount: &operatorv1alpha1.ServiceAccountAuthentication{Enabled: true}}
	cache := &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "kcp"}}
	shard := desired.NewShard(object, root)
	held := podCertificates(t, shard, nil)
	for _, certificate := range podCertificates(t, shard, cache) {
		if !slices.ContainsFunc(held, func(c *certmanagerv1.Certificate) bool { return c.Name == certificate.Name }) {
			held = append(held, certificate)
		}
	}
	var users []*testUser
	for _, certificate := range held {
		var groups []string
		if certificate.Spec.Subject != nil {
			groups = certificate.Spec.Subject.Organizations
		}
		name := certificate.Spec.CommonName
		var pair tls.Certificate
		switch issuer := certificate.Spec.IssuerRef.Name; issuer {
		case desired.CAName(root, desired.ClientCA), desired.NewCacheServer(cache).CA(): // one authority here
			pair = e.clientCertificate(t, name, groups...)
		case desired.CAName(root, desired.RequestHeaderCA):
			pair = e.proxyCertificate(t, name)
		case desired.CAName(root, desired.ServerCA), desired.CAName(root, desired.ServiceAccountCA): // no server accepts either from clients
			files, err := e.layout.ServerCertificate(name)
			must(t, err)
			pair = loadCertificate(t, files.CertFile, files.KeyFile)
		default:
			t.Fatalf("certificate %s is of the unknown authority %s", certificate.Name, issuer)
		}
		users = append(users, e.newUser(t, certificate.Name, &pair))
	}
	return users
}

// testShardPod holds every credential out of the pod of the shard of a and tries each of them against b at its shard, at
// root, at the front proxy and at the cache: by itself, with identity headers and impersonating others.
func testShardPod(t *testing.T, s *env) {
	users := s.shardPodUsers(t)
	if len(users) < 4 {
		t.Fatalf("the pod has %d certificates, want at least those of the server, of tokens, of the client and of the cache", len(users))
	}
	identities := []http.Header{nil}
	for _, name := range []string{"bob", "kcp-admin", shardGroup + ":" + s.placement.b} {
		for _, group := range []string{"system:kcp:admin", "system:masters", "system:kcp:external-logical-cluster-admin", "system:kcp:logical-cluster-admin", shardGroup} {
			identities = append(identities, http.Header{"X-Remote-User": {name}, "X-Remote-Group": {group, "system:authenticated"}}, http.Header{"Impersonate-User": {name}, "Impersonate-Group": {group}})
		}
	}
	cluster, root := "/clusters/"+s.b, "/clusters/root"
	for _, base := range []string{s.layout.URL(s.placement.b), s.layout.URL(installation.Root), s.proxyURL} {
		for _, caller := range users {
			for _, header := range identities {
				for _, r := range []request{
					{path: cluster + secretsPath + "/confidential"}, {path: "/clusters/root:b" + secretsPath + "/confidential"}, {path: cluster + "/api/v1/secrets"}, {path: "/clusters/*/api/v1/secrets"},
					{path: cluster + confidentialPath}, {path: root + "/api/v1/secrets"}, {path: "/clusters/system:admin/api/v1/secrets"},
					{method: http.MethodDelete, path: cluster + ownClusterPath + "?dryRun=All"}, {method: http.MethodDelete, path: root + workspacesPath + "/b?dryRun=All"},
					{method: http.MethodPatch, path: root + shardsPath + "/" + s.placement.b + "?dryRun=All", body: `{"spec":{"baseURL":"https://evil.example"}}`, contentType: mergePatchType},
					{path: "/metrics"}, {path: "/services/apiexport/root/tenancy.kcp.io" + "/clusters/*" + workspacesPath},
				} {
					r.header = header
					if got := s.send(t, caller, base, r); got.status < 400 || got.status >= 500 {
						t.Errorf("%s with %v: %s %s of the %s: %d %.300s", caller.name, header, r.method, r.path, s.serverName(base), got.status, got.body)
					}
				}
				for _, in := range []string{cluster, root} {
					s.checkOwnIdentity(t, caller, base, request{method: http.MethodPost, path: in + reviewsPath, body: selfReviewJSON, header: header})
				}
			}
		}
	}
	for _, caller := range users {
		for _, path := range []string{"/services/cache/shards/" + s.placement.b + "/clusters/" + s.b + clusterBindings, "/services/cache/shards/" + installation.Root + "/clusters/root" + clusterBindings} {
			body := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"evil"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`
			if got := s.send(t, caller, s.cacheURL, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
				t.Errorf("%s publishes for another shard: %d %.300s", caller.name, got.status, got.body)
			}
		}
	}
	s.testForgedServiceAccounts(t)
}

// checkOwnIdentity checks that a server takes the holder of a certificate for no other user, and for no administrator.
func (e *env) checkOwnIdentity(t *testing.T, caller *testUser, base string, r request) {
	t.Helper()
	got := e.send(t, caller, base, r)
	if got.status != http.StatusCreated {
		return
	}
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	must(t, json.Unmarshal([]byte(got.body), &review))
	user := review.Status.UserInfo
	privileged := func(group string) bool {
		return group != shardGroup && group != "system:authenticated" && group != "system:unauthenticated"
	}
	if slices.ContainsFunc(user.Groups, privileged) || !slices.Contains([]string{"system:anonymous", shardGroup + ":" + e.placement.a}, user.Username) {
		t.Errorf("%s with %v is %q of %v at the %s", caller.name, r.header, user.Username, user.Groups, e.serverName(base))
	}
}

// testForgedServiceAccounts signs tokens with the key of the shard of a. They are valid for service accounts of logical
// clusters of that shard, at every server, and for no others.
func (e *env) testForgedServiceAccounts(t *testing.T) {
	key, err := keyutil.PrivateKeyFromFile(e.layout.SigningKey(e.placement.a))
	must(t, err)
	generator, err := authentication.NewTokenGenerator("https://kcp.default.svc", key)
	must(t, err)
	sign := func(cluster string, legacy bool) *testUser {
		account, err := e.clientset(t, cluster).CoreV1().ServiceAccounts("default").Get(t.Context(), "builder", metav1.GetOptions{})
		must(t, err)
		claims, private, err := serviceaccount.Claims(core.ServiceAccount{ObjectMeta: account.ObjectMeta}, nil, nil, nil, nil, nil, int64(time.Hour.Seconds()), 0, []string{"https://kcp.default.svc"}, nil)
		must(t, err)
		if legacy {
			claims, private = serviceaccount.LegacyClaims(*account, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "builder-token"}})
		}
		token, err := generator.GenerateToken(logicalcluster.With(t.Context(), logicalcluster.MustParseName(cluster)), claims, private)
		must(t, err)
		caller := e.newUser(t, fmt.Sprintf("a service account of %s, signed by %s (legacy: %v)", cluster, e.placement.a, legacy), nil)
		caller.token = token
		return caller
	}
	for _, base := range e.serverURLs() {
		for _, path := range []string{"/clusters/" + e.a + "/api/v1/namespaces", "/clusters/" + e.b + "/api/v1/namespaces", "/clusters/root/api/v1/namespaces", "/api/v1/namespaces"} {
			if got := e.send(t, e.serviceAccount, base, request{path: path}); got.status != http.StatusOK && got.status != http.StatusForbidden {
				t.Errorf("a token of its own shard is not accepted by the %s for %s: %d %.300s", e.serverName(base), path, got.status, got.body)
			}
			if got := e.send(t, sign(e.a, false), base, request{path: path}); got.status != http.StatusOK && got.status != http.StatusForbidden {
				t.Errorf("a shard cannot sign for its own logical cluster at the %s: %d %.300s", e.serverName(base), got.status, got.body)
			}
			for _, forged := range []*testUser{sign(e.b, false), sign(e.b, true)} {
				if got := e.send(t, forged, base, request{path: path}); got.status != http.StatusUnauthorized {
					t.Errorf("%s gets %s of the %s: %d %.300s", forged.name, path, e.serverName(base), got.status, got.body)
				}
			}
		}
	}
}
