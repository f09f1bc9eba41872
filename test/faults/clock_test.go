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

// byClock returns a place with a shifted clock. It skips the test where that is not supported.
func byClock(t *testing.T, shift time.Duration) sharded.Place {
	t.Helper()
	if err := programs.Build(t.Context(), "../..", binaries, "./test/skew"); err != nil {
		t.Fatal(err)
	}
	command := []string{filepath.Join(binaries, "skew"), shift.String()}
	if output, err := exec.Command(command[0], command[1], filepath.Join(binaries, "kcp"), "--version").CombinedOutput(); err != nil {
		t.Skipf("a clock of its own needs a tracer, and Linux on amd64: %s", output)
	}
	return sharded.Place{Command: command}
}

// TestClocksThatDiffer has 20 minutes between two shards, and the third in the middle. Shards measure the age of data
// from others by their own clock only, so that tenants are affected only where another server evaluates timestamps:
// tokens and certificates.
func TestClocksThatDiffer(t *testing.T) {
	s := newSite(t, sharded.Options{Places: map[string]sharded.Place{
		alpha: byClock(t, ahead), beta: byClock(t, behind), sharded.CacheServer: byClock(t, behind),
	}})
	before := s.mark()
	s.step(t, "servers have different clocks", func(s *site) {
		s.hasClock(root, 0)
		s.hasClock(alpha, ahead)
		s.hasClock(beta, behind)
		s.hasClock(sharded.CacheServer, behind)
	})
	s.step(t, "shards are alive, and get workspaces", func(s *site) { s.alive("one") })
	s.step(t, "what is deleted goes, and nothing else", func(s *site) { s.deletes("by-differing-clocks") })
	s.step(t, "tokens", s.tokensByClock)
	s.step(t, "certificates", s.certificatesByClock)
	s.step(t, "clocks that are set right", func(s *site) {
		for _, server := range []string{alpha, beta, sharded.CacheServer} {
			s.Process(s.T, server).Signal(s.T, syscall.SIGUSR1)
		}
		s.hasClock(alpha, 0)
		s.hasClock(beta, 0)
		s.alive("two")
		s.deletes("by-the-right-clock")
		for shard, cluster := range s.consumers {
			s.answers(s.token(shard), s.URL, cluster, http.StatusOK)
		}
	})
	s.serving(before, root, alpha, beta)
	s.finish()
}

// hasClock checks that a server's clock differs by a duration.
func (s *site) hasClock(server string, by time.Duration) {
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
			return fmt.Errorf("says %s, which is wrong by %s", date, differs)
		}
		return err
	})
}

// alive checks that all shards count as healthy, and receive workspaces.
func (s *site) alive(prefix string) {
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
		s.workspace(prefix+"-"+shard, shard)
	}
}

// deletes checks on each shard that deleted objects disappear with their dependants and content while others stay, and
// that a workspace tree that spans all shards is deleted.
func (s *site) deletes(name string) {
	s.Helper()
	for _, shard := range s.Shards() {
		s.deletesOwned(s.consumers[shard], name)
		cluster := s.workspace(name+"-"+shard, shard)
		s.bind(cluster)
		if err := s.widget(s.Context(), cluster, name); err != nil {
			s.Fatal(err)
		}
		binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
		s.goes(cluster, binding)
	}
	for _, top := range s.Shards() {
		within := "root"
		tree := name + "-tree-" + top
		for _, shard := range []string{top, root, alpha, beta} {
			within = shardtesting.NewWorkspace(s.T, s.admin, within, tree, shardtesting.OnShard(shard)).Spec.Cluster
		}
		s.goes("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: tree}})
	}
	for _, shard := range s.Shards() {
		s.goes("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + shard}})
	}
}

// deletesOwned deletes one of two owners, and a namespace.
func (s *site) deletesOwned(cluster, name string) {
	s.Helper()
	ctx := shardtesting.In(s.Context(), cluster)
	made := func(object client.Object) {
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
	stays, goes := configMap(name+"-stays", nil), configMap(name+"-goes", nil)
	made(stays)
	made(goes)
	staysToo, goesToo := configMap(name+"-stays-too", stays), configMap(name+"-goes-too", goes)
	made(staysToo)
	made(goesToo)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	made(namespace)
	inside := configMap(name, nil)
	inside.Namespace = name
	made(inside)

	s.goes(cluster, namespace)
	s.goes(cluster, goes)
	s.gone(cluster, goesToo)
	for _, object := range []client.Object{stays, staysToo} {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			s.Error(err)
		}
	}
}

// goes deletes an object and waits for its end.
func (s *site) goes(cluster string, object client.Object) {
	s.Helper()
	if err := s.admin.Delete(shardtesting.In(s.Context(), cluster), object); err != nil {
		s.Fatalf("deleting %s: %v", object.GetName(), err)
	}
	s.gone(cluster, object)
}

func (s *site) gone(cluster string, object client.Object) {
	s.Helper()
	shardtesting.Eventually(s.T, object.GetName()+" goes", func(ctx context.Context) error {
		err := s.admin.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(object), object)
		if err == nil {
			return fmt.Errorf("it is there: %+v", object)
		}
		return client.IgnoreNotFound(err)
	})
}

// tokensByClock: the validity period of a token follows the clock of the shard that signs it. All other servers
// tolerate a minute of difference. Behind the front proxy only the proxy's clock counts besides.
func (*site) tokensByClock(s *site) {
	at := s.ServerURL
	for _, shard := range s.Shards() {
		s.answers(s.token(shard), at(shard), s.consumers[shard], http.StatusOK) // its own
	}
	s.answers(s.token(root), s.URL, s.consumers[root], http.StatusOK)
	s.answers(s.token(beta), s.URL, s.consumers[beta], http.StatusOK) // expires ten minutes early
	s.answers(s.token(beta), at(alpha), s.consumers[alpha], http.StatusForbidden)
	s.answers(s.token(root), s.URL, s.consumers[beta], http.StatusForbidden)
	s.answers(s.token(root), s.URL, s.consumers[alpha], http.StatusForbidden)

	// Signed in the future.
	s.answers(s.token(alpha), s.URL, s.consumers[alpha], http.StatusUnauthorized)
	s.answers(s.token(alpha), at(root), s.consumers[root], http.StatusUnauthorized)
	s.answers(s.token(root), at(beta), s.consumers[beta], http.StatusUnauthorized)
	for _, server := range []string{sharded.FrontProxy, root, beta} {
		s.says(server, "not valid yet")
	}
	// A token of a secret does not expire.
	s.answers(s.lastingToken(alpha), s.URL, s.consumers[alpha], http.StatusOK)
}

// token returns a new token of an account in the consumer on a shard.
func (s *site) token(shard string) string {
	s.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
	request := &authenticationv1.TokenRequest{}
	if err := s.admin.SubResource("token").Create(shardtesting.In(s.Context(), s.consumers[shard]), account, request); err != nil {
		s.Fatal(err)
	}
	return request.Status.Token
}

func (s *site) lastingToken(shard string) string {
	s.Helper()
	ctx := shardtesting.In(s.Context(), s.consumers[shard])
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "lasting", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
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

// answers checks the status of a request that any account of a logical cluster may send there: 401 for a token that is
// not accepted, 403 for one of another logical cluster.
func (s *site) answers(token, url, cluster string, want int) {
	s.Helper()
	config := rest.AnonymousClientConfig(s.Masters(s.T, root))
	config.BearerToken = token
	s.get(config, url+"/clusters/"+cluster+"/api", want)
}

func (s *site) get(config *rest.Config, url string, want int) {
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
		s.Errorf("%s answers %d, want %d", url, response.StatusCode, want)
	}
}

// says waits until the log of a server contains a message, which may be written after the response that it belongs to.
func (s *site) says(server, want string) {
	s.Helper()
	shardtesting.Eventually(s.T, server+" tells its administrator", func(context.Context) error {
		if !strings.Contains(s.Process(s.T, server).Output(), want) {
			return fmt.Errorf("%s does not say %q", server, want)
		}
		return nil
	})
}

// certificatesByClock: a certificate that was just issued is not valid yet where the clock is behind. The front proxy,
// and other clients of that shard with a certificate that is some minutes old, are unaffected.
func (*site) certificatesByClock(s *site) {
	for shard, want := range map[string]int{root: http.StatusOK, alpha: http.StatusOK, beta: http.StatusUnauthorized} {
		config, err := s.Layout().NewClient(s.ServerURL(shard), "just-now", "system:masters")
		if err != nil {
			s.Fatal(err)
		}
		s.get(config, config.Host+"/clusters/"+s.consumers[shard]+"/api", want)
	}
	s.says(beta, "certificate has expired or is not yet valid")
	config, err := s.Layout().NewClient(s.URL, "just-now", "system:kcp:admin")
	if err != nil {
		s.Fatal(err)
	}
	s.get(config, s.URL+"/clusters/"+s.consumers[beta]+"/api/v1/namespaces", http.StatusOK)
}
