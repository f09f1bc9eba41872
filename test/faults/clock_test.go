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
func (e *env) expectClock(server string, by time.Duration) {
	e.Helper()
	config := e.Masters(e.T, server)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		e.Fatal(err)
	}
	defer client.CloseIdleConnections()
	shardtesting.Eventually(e.T, "the clock of "+server, func(context.Context) error {
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
func (e *env) expectHealthyShards(prefix string) {
	e.Helper()
	shardtesting.Eventually(e.T, "all shards are healthy", func(ctx context.Context) error {
		var shards corev1alpha1.ShardList
		if err := e.admin.List(shardtesting.In(ctx, "root"), &shards); err != nil {
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
	for _, shard := range e.Shards() {
		e.createWorkspace(prefix+"-"+shard, shard)
	}
}

// testDeletion checks on each shard that deleted objects disappear with their dependants and content while others are
// kept, and that a workspace tree that spans all shards is deleted.
func (e *env) testDeletion(name string) {
	e.Helper()
	for _, shard := range e.Shards() {
		e.testOwnerDeletion(e.consumers[shard], name)
		cluster := e.createWorkspace(name+"-"+shard, shard)
		e.bind(cluster)
		if err := e.createWidget(e.Context(), cluster, name); err != nil {
			e.Fatal(err)
		}
		binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
		e.deleteAndWait(cluster, binding)
	}
	for _, top := range e.Shards() {
		parent := "root"
		tree := name + "-tree-" + top
		for _, shard := range []string{top, root, alpha, beta} {
			parent = shardtesting.NewWorkspace(e.T, e.admin, parent, tree, shardtesting.OnShard(shard)).Spec.Cluster
		}
		e.deleteAndWait("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: tree}})
	}
	for _, shard := range e.Shards() {
		e.deleteAndWait("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + shard}})
	}
}

// testOwnerDeletion deletes one of two owners, and a namespace.
func (e *env) testOwnerDeletion(cluster, name string) {
	e.Helper()
	ctx := shardtesting.In(e.Context(), cluster)
	create := func(object client.Object) {
		e.Helper()
		if err := e.admin.Create(ctx, object); err != nil {
			e.Fatal(err)
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

	e.deleteAndWait(cluster, namespace)
	e.deleteAndWait(cluster, deletedOwner)
	e.waitForDeletion(cluster, deletedDependant)
	for _, object := range []client.Object{keptOwner, keptDependant} {
		if err := e.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			e.Error(err)
		}
	}
}

// deleteAndWait deletes an object and waits for its deletion.
func (e *env) deleteAndWait(cluster string, object client.Object) {
	e.Helper()
	if err := e.admin.Delete(shardtesting.In(e.Context(), cluster), object); err != nil {
		e.Fatalf("deleting %s: %v", object.GetName(), err)
	}
	e.waitForDeletion(cluster, object)
}

func (e *env) waitForDeletion(cluster string, object client.Object) {
	e.Helper()
	shardtesting.Eventually(e.T, object.GetName()+" is deleted", func(ctx context.Context) error {
		err := e.admin.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(object), object)
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
func (e *env) createToken(shard string) string {
	e.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
	request := &authenticationv1.TokenRequest{}
	if err := e.admin.SubResource("token").Create(shardtesting.In(e.Context(), e.consumers[shard]), account, request); err != nil {
		e.Fatal(err)
	}
	return request.Status.Token
}

func (e *env) createSecretToken(shard string) string {
	e.Helper()
	ctx := shardtesting.In(e.Context(), e.consumers[shard])
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if err := e.admin.Create(ctx, secret); err != nil {
		e.Fatal(err)
	}
	shardtesting.Eventually(e.T, "the secret gets its token", func(context.Context) error {
		if err := e.admin.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil || len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 {
			return err
		}
		return fmt.Errorf("got %v", secret.Data)
	})
	return string(secret.Data[corev1.ServiceAccountTokenKey])
}

// expectTokenStatus checks the status of a request that any account of a logical cluster may send there: 401 for a
// token that is not accepted, 403 for one of another logical cluster.
func (e *env) expectTokenStatus(token, url, cluster string, want int) {
	e.Helper()
	config := rest.AnonymousClientConfig(e.Masters(e.T, root))
	config.BearerToken = token
	e.expectStatus(config, url+"/clusters/"+cluster+"/api", want)
}

func (e *env) expectStatus(config *rest.Config, url string, want int) {
	e.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		e.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(url)
	if err != nil {
		e.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != want {
		e.Errorf("%s returns %d, want %d", url, response.StatusCode, want)
	}
}

// waitForLog waits until the log of a server contains a message, which may be written after the response.
func (e *env) waitForLog(server, want string) {
	e.Helper()
	shardtesting.Eventually(e.T, server+" logs the message", func(context.Context) error {
		if !strings.Contains(e.Process(e.T, server).Output(), want) {
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
