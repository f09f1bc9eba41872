package faults

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
	"github.com/atoll-dev/atoll/test/sharded"
)

// Clocks of servers, relative to that of the test, the root shard and the front proxy.
const ahead, behind = 10 * time.Minute, -10 * time.Minute

// shiftedClock returns a host with a shifted clock. It skips the test where that is not supported.
func shiftedClock(t *testing.T, shift time.Duration) sharded.Host {
	t.Helper()
	if err := programs.Build(t.Context(), "../..", binaries, "./test/skew"); err != nil {
		t.Fatal(err)
	}
	command := []string{filepath.Join(binaries, "skew"), shift.String()}
	if output, err := exec.Command(command[0], command[1], filepath.Join(binaries, "kcp"), "--version").CombinedOutput(); err != nil {
		t.Skipf("a shifted clock needs ptrace, and Linux on amd64: %s", output)
	}
	return sharded.Host{Command: command}
}

// TestClockSkew has 20 minutes between two shards, and the third in the middle. Shards measure the age of remote data
// by their own clock only, so that tenants are affected only where another server evaluates timestamps: tokens and
// certificates.
func TestClockSkew(t *testing.T) {
	s := newEnv(t, sharded.Options{Hosts: map[string]sharded.Host{
		alpha: shiftedClock(t, ahead), beta: shiftedClock(t, behind), sharded.CacheServer: shiftedClock(t, behind),
	}})
	before := s.countFailures()
	s.step(t, "servers have different clocks", func(s *env) {
		s.expectClock(root, 0)
		s.expectClock(alpha, ahead)
		s.expectClock(beta, behind)
		s.expectClock(sharded.CacheServer, behind)
	})
	s.step(t, "shards are healthy and schedulable", func(s *env) { s.expectHealthyShards("one") })
	s.step(t, "deletion and garbage collection", func(s *env) { s.testDeletion("by-differing-clocks") })
	s.step(t, "tokens", s.testTokens)
	s.step(t, "certificates", s.testCertificates)
	s.step(t, "clocks are corrected", func(s *env) {
		for _, server := range []string{alpha, beta, sharded.CacheServer} {
			s.Process(s.T, server).Signal(s.T, syscall.SIGUSR1)
		}
		s.expectClock(alpha, 0)
		s.expectClock(beta, 0)
		s.expectHealthyShards("two")
		s.testDeletion("by-the-right-clock")
		for shard, cluster := range s.consumers {
			s.expectTokenStatus(s.createToken(shard), s.URL, cluster, http.StatusOK)
		}
	})
	s.expectServing(before, root, alpha, beta)
	s.finish()
}

// expectClock checks that a server's clock differs by a duration.
func (s *env) expectClock(server string, by time.Duration) {
	s.Helper()
	config := s.Masters(s.T, server)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		s.Fatal(err)
	}
	defer client.CloseIdleConnections()
	shardtesting.Eventually(s.T, "the clock of "+server, func(context.Context) error {
		response, err := client.Get(config.Host + "/livez")
		if err != nil {
			return err
		}
		response.Body.Close()
		date, err := http.ParseTime(response.Header.Get("Date"))
		if differs := time.Since(date) + by; err == nil && differs.Abs() > 5*time.Second {
			return fmt.Errorf("returns %s, which differs by %s", date, differs)
		}
		return err
	})
}

// expectHealthyShards checks that all shards count as healthy, and receive workspaces.
func (s *env) expectHealthyShards(prefix string) {
	s.Helper()
	shardtesting.Eventually(s.T, "all shards are healthy", func(ctx context.Context) error {
		var shards corev1alpha1.ShardList
		if err := s.admin.List(shardtesting.In(ctx, "root"), &shards); err != nil {
			return err
		}
		for i := range shards.Items {
			for _, condition := range []conditionsv1alpha1.Type{conditionsv1alpha1.Ready, corev1alpha1.ShardSchedulable} {
				if !conditionsv1alpha1.IsTrue(&shards.Items[i], condition) {
					return fmt.Errorf("%s: %+v", shards.Items[i].Name, shards.Items[i].Status.Conditions)
				}
			}
		}
		return nil
	})
	for _, shard := range s.Shards() {
		s.createWorkspace(prefix+"-"+shard, shard)
	}
}

// testDeletion checks on each shard that deleted objects disappear with their dependants and content while others are
// kept, and that a workspace tree that spans all shards is deleted.
func (s *env) testDeletion(name string) {
	s.Helper()
	for _, shard := range s.Shards() {
		s.testOwnerDeletion(s.consumers[shard], name)
		cluster := s.createWorkspace(name+"-"+shard, shard)
		s.bind(cluster)
		if err := s.createWidget(s.Context(), cluster, name); err != nil {
			s.Fatal(err)
		}
		binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
		s.deleteAndWait(cluster, binding)
	}
	for _, top := range s.Shards() {
		parent := "root"
		tree := name + "-tree-" + top
		for _, shard := range []string{top, root, alpha, beta} {
			parent = shardtesting.NewWorkspace(s.T, s.admin, parent, tree, shardtesting.OnShard(shard)).Spec.Cluster
		}
		s.deleteAndWait("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: tree}})
	}
	for _, shard := range s.Shards() {
		s.deleteAndWait("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + shard}})
	}
}

// testOwnerDeletion deletes one of two owners, and a namespace.
func (s *env) testOwnerDeletion(cluster, name string) {
	s.Helper()
	ctx := shardtesting.In(s.Context(), cluster)
	create := func(object client.Object) {
		s.Helper()
		if err := s.admin.Create(ctx, object); err != nil {
			s.Fatal(err)
		}
	}
	configMap := func(name string, owner *corev1.ConfigMap) *corev1.ConfigMap {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
		if owner != nil {
			object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		}
		return object
	}
	keptOwner, deletedOwner := configMap(name+"-kept", nil), configMap(name+"-deleted", nil)
	create(keptOwner)
	create(deletedOwner)
	keptDependant, deletedDependant := configMap(name+"-kept-dependant", keptOwner), configMap(name+"-deleted-dependant", deletedOwner)
	create(keptDependant)
	create(deletedDependant)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	create(namespace)
	namespaced := configMap(name, nil)
	namespaced.Namespace = name
	create(namespaced)

	s.deleteAndWait(cluster, namespace)
	s.deleteAndWait(cluster, deletedOwner)
	s.waitForDeletion(cluster, deletedDependant)
	for _, object := range []client.Object{keptOwner, keptDependant} {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			s.Error(err)
		}
	}
}

// deleteAndWait deletes an object and waits for its deletion.
func (s *env) deleteAndWait(cluster string, object client.Object) {
	s.Helper()
	if err := s.admin.Delete(shardtesting.In(s.Context(), cluster), object); err != nil {
		s.Fatalf("deleting %s: %v", object.GetName(), err)
	}
	s.waitForDeletion(cluster, object)
}

func (s *env) waitForDeletion(cluster string, object client.Object) {
	s.Helper()
	shardtesting.Eventually(s.T, object.GetName()+" is deleted", func(ctx context.Context) error {
		err := s.admin.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(object), object)
		if err == nil {
			return fmt.Errorf("it exists: %+v", object)
		}
		return client.IgnoreNotFound(err)
	})
}

// testTokens checks that the validity period of a token follows the clock of the shard that signs it. All other servers
// tolerate a minute of difference. Behind the front proxy only the clock of the proxy matters in addition.
func (*env) testTokens(s *env) {
	at := s.ServerURL
	for _, shard := range s.Shards() {
		s.expectTokenStatus(s.createToken(shard), at(shard), s.consumers[shard], http.StatusOK) // its own
	}
	s.expectTokenStatus(s.createToken(root), s.URL, s.consumers[root], http.StatusOK)
	s.expectTokenStatus(s.createToken(beta), s.URL, s.consumers[beta], http.StatusOK) // expires ten minutes early
	s.expectTokenStatus(s.createToken(beta), at(alpha), s.consumers[alpha], http.StatusForbidden)
	s.expectTokenStatus(s.createToken(root), s.URL, s.consumers[beta], http.StatusForbidden)
	s.expectTokenStatus(s.createToken(root), s.URL, s.consumers[alpha], http.StatusForbidden)

	// Signed in the future.
	s.expectTokenStatus(s.createToken(alpha), s.URL, s.consumers[alpha], http.StatusUnauthorized)
	s.expectTokenStatus(s.createToken(alpha), at(root), s.consumers[root], http.StatusUnauthorized)
	s.expectTokenStatus(s.createToken(root), at(beta), s.consumers[beta], http.StatusUnauthorized)
	for _, server := range []string{sharded.FrontProxy, root, beta} {
		s.waitForLog(server, "not valid yet")
	}
	// A token of a secret does not expire.
	s.expectTokenStatus(s.createSecretToken(alpha), s.URL, s.consumers[alpha], http.StatusOK)
}

// createToken returns a new token of an account in the consumer on a shard.
func (s *env) createToken(shard string) string {
	s.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
	request := &authenticationv1.TokenRequest{}
	if err := s.admin.SubResource("token").Create(shardtesting.In(s.Context(), s.consumers[shard]), account, request); err != nil {
		s.Fatal(err)
	}
	return request.Status.Token
}

func (s *env) createSecretToken(shard string) string {
	s.Helper()
	ctx := shardtesting.In(s.Context(), s.consumers[shard])
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if err := s.admin.Create(ctx, secret); err != nil {
		s.Fatal(err)
	}
	shardtesting.Eventually(s.T, "the secret gets its token", func(context.Context) error {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil || len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 {
			return err
		}
		return fmt.Errorf("got %v", secret.Data)
	})
	return string(secret.Data[corev1.ServiceAccountTokenKey])
}

// expectTokenStatus checks the status of a request that any account of a logical cluster may send there: 401 for a
// token that is not accepted, 403 for one of another logical cluster.
func (s *env) expectTokenStatus(token, url, cluster string, want int) {
	s.Helper()
	config := rest.AnonymousClientConfig(s.Masters(s.T, root))
	config.BearerToken = token
	s.expectStatus(config, url+"/clusters/"+cluster+"/api", want)
}

func (s *env) expectStatus(config *rest.Config, url string, want int) {
	s.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		s.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(url)
	if err != nil {
		s.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != want {
		s.Errorf("%s returns %d, want %d", url, response.StatusCode, want)
	}
}

// waitForLog waits until the log of a server contains a message, which may be written after the response.
func (s *env) waitForLog(server, want string) {
	s.Helper()
	shardtesting.Eventually(s.T, server+" logs the message", func(context.Context) error {
		if !strings.Contains(s.Process(s.T, server).Output(), want) {
			return fmt.Errorf("%s does not log %q", server, want)
		}
		return nil
	})
}

// testCertificates checks that a certificate that was just issued is not valid yet where the clock is behind. The front
// proxy, and other clients of that shard with a certificate that is some minutes old, are unaffected.
func (*env) testCertificates(s *env) {
	for shard, want := range map[string]int{root: http.StatusOK, alpha: http.StatusOK, beta: http.StatusUnauthorized} {
		config, err := s.Layout().NewClient(s.ServerURL(shard), "just-now", "system:masters")
		if err != nil {
			s.Fatal(err)
		}
		s.expectStatus(config, config.Host+"/clusters/"+s.consumers[shard]+"/api", want)
	}
	s.waitForLog(beta, "certificate has expired or is not yet valid")
	config, err := s.Layout().NewClient(s.URL, "just-now", "system:kcp:admin")
	if err != nil {
		s.Fatal(err)
	}
	s.expectStatus(config, s.URL+"/clusters/"+s.consumers[beta]+"/api/v1/namespaces", http.StatusOK)
}
