package shardserver_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdowner"
	"github.com/atoll-dev/atoll/shardserver"
	"github.com/atoll-dev/atoll/shardserver/bootstrap"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestShardJoin covers reading and storing the identities of root, the registration and the heartbeat. The shard
// restarts without the root shard.
func TestShardJoin(t *testing.T) {
	root := shardtesting.Start(t)
	atRoot := root.Client(t, root.Masters(t))
	identities := rootIdentities(t, atRoot)
	beta := shardtesting.StartShard(t, root, "beta")

	t.Run("the identities of root are stored", func(t *testing.T) {
		waitForIdentityCache(t, beta.Client(t, beta.Masters(t)), identities)
	})
	t.Run("a ready shard is registered", func(t *testing.T) {
		shard := getShard(t, atRoot, "beta")
		if want := beta.Masters(t).Host; shard.Spec.BaseURL != want || shard.Spec.ExternalURL != want || shard.Labels["name"] != "beta" {
			t.Errorf("it is registered as %+v, %v, want URL %s", shard.Spec, shard.Labels, want)
		}
	})
	for _, name := range []string{"root", "beta"} {
		t.Run("shard "+name+" reports its status", func(t *testing.T) {
			shardtesting.Eventually(t, "shard is Ready and Schedulable", func(context.Context) error {
				shard := getShard(t, atRoot, name)
				if !conditionsv1alpha1.IsTrue(shard, conditionsv1alpha1.Ready) || !conditionsv1alpha1.IsTrue(shard, corev1alpha1.ShardSchedulable) {
					return fmt.Errorf("its status is %+v", shard.Status)
				}
				return nil
			})
		})
	}
	t.Run("a restart updates the URLs and labels", func(t *testing.T) {
		must(t, beta.Stop())
		beta = shardtesting.StartShardIn(t, beta.Directory, root, "beta", func(o *options.Options) { o.Shard.Labels = map[string]string{"region": "moon"} })
		shardtesting.Eventually(t, "the new address", func(context.Context) error {
			shard := getShard(t, atRoot, "beta")
			if want := beta.Masters(t).Host; shard.Spec.BaseURL != want || shard.Labels["region"] != "moon" {
				return fmt.Errorf("it is registered as %+v, %v, want URL %s", shard.Spec, shard.Labels, want)
			}
			return nil
		})
	})
	t.Run("it restarts while the root shard and its cache are down", func(t *testing.T) {
		must(t, beta.Stop())
		join := root.Peer(t, "beta")
		must(t, root.Stop())
		alone := shardtesting.StartIn(t, beta.Directory, join)
		waitForIdentityCache(t, alone.Client(t, alone.Masters(t)), identities)
	})
}

// TestShardRejectsOtherRoot: a shard never accepts the identities of another root.
func TestShardRejectsOtherRoot(t *testing.T) {
	first, second := shardtesting.Start(t), shardtesting.Start(t)
	identities := rootIdentities(t, first.Client(t, first.Masters(t)))
	others := rootIdentities(t, second.Client(t, second.Masters(t)))
	beta := shardtesting.StartShard(t, first, "beta")
	must(t, beta.Stop())

	stray := startShard(t, shardtesting.Options(t, beta.Directory, second.Peer(t, "beta")))
	shardtesting.Eventually(t, "the reason why it is not ready", func(context.Context) error {
		code, body := stray.get(t, "/readyz?verbose")
		if code != http.StatusInternalServerError || !strings.Contains(body, "shard-registration failed") {
			return fmt.Errorf("%d: %s", code, body)
		}
		return nil
	})
	stray.stop(t)
	var missing corev1alpha1.Shard
	atSecond := second.Client(t, second.Masters(t))
	if err := atSecond.Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: "beta"}, &missing); !apierrors.IsNotFound(err) {
		t.Errorf("it is registered there: %v, %v", err, missing)
	}
	if identities["tenancy.kcp.io"] == others["tenancy.kcp.io"] {
		t.Fatal("both installations have the same identities")
	}
	again := shardtesting.StartShardIn(t, beta.Directory, first, "beta")
	waitForIdentityCache(t, again.Client(t, again.Masters(t)), identities)
}

// TestNewShardWithoutRoot: until a shard has the identities, it only serves health checks, which report it as live, and
// not ready with the reason.
func TestNewShardWithoutRoot(t *testing.T) {
	root := shardtesting.Start(t)
	join := root.Peer(t, "beta")
	must(t, root.Stop())

	beta := startShard(t, shardtesting.Options(t, t.TempDir(), join))
	shardtesting.Eventually(t, "answers on the port", func(context.Context) error {
		if code, body := beta.get(t, "/livez"); code != http.StatusOK {
			return fmt.Errorf("/livez: %d %s", code, body)
		}
		if code, body := beta.get(t, "/readyz"); code != http.StatusInternalServerError || !strings.Contains(body, "from the root shard") {
			return fmt.Errorf("/readyz: %d %s", code, body)
		}
		if code, _ := beta.get(t, "/clusters/root/api"); code != http.StatusServiceUnavailable {
			return fmt.Errorf("the API: %d", code)
		}
		return nil
	})
	t.Run("it can be stopped", func(t *testing.T) { beta.stop(t) })
}

// TestShardOnKeysOfAnother: a shard whose etcd and prefix are those of another one writes nothing and only serves health
// checks, which name the owner. The owner itself restarts, also on data of a version that did not claim its keys.
func TestShardOnKeysOfAnother(t *testing.T) {
	root := shardtesting.Start(t)
	keys := func() []string {
		return slices.DeleteFunc(root.Keys(t, "beta"), func(key string) bool { return strings.Contains(key, "/~elsewhere/") })
	}
	beta := startShard(t, shardtesting.Options(t, t.TempDir(), root.Peer(t, "beta"), func(o *options.Options) {
		o.Etcd.StorageConfig.Transport = root.Server.StorageTransport()
	}))
	shardtesting.Eventually(t, "the reason why it is not ready", func(context.Context) error {
		if code, body := beta.get(t, "/readyz"); code != http.StatusInternalServerError || !strings.Contains(body, `the keys in etcd belong to "root"`) {
			return fmt.Errorf("/readyz: %d %s", code, body)
		}
		if code, _ := beta.get(t, "/clusters/root/api"); code != http.StatusServiceUnavailable {
			return fmt.Errorf("the API: %d", code)
		}
		return nil
	})
	beta.stop(t)
	if found := keys(); len(found) > 0 {
		t.Errorf("it wrote %v", found)
	}

	for _, prefix := range []string{etcdPrefix, "/cache"} {
		root.DeleteKey(t, etcdowner.Key(prefix))
	}
	must(t, root.Stop())
	again := shardtesting.StartIn(t, root.Directory)
	for _, prefix := range []string{etcdPrefix, "/cache"} {
		if owner := again.Stored(t)[etcdowner.Key(prefix)]; string(owner) != "root" {
			t.Errorf("the keys below %s belong to %q", prefix, owner)
		}
	}
}

// TestShardPermissionsInRoot: the certificate of a shard grants exactly the permissions that the shard needs in root.
func TestShardPermissionsInRoot(t *testing.T) {
	ca := shardtesting.NewCA(t, "clients")
	root := shardtesting.Start(t, func(o *options.Options) { o.Authentication.ClientCert.ClientCA = ca.CertFile })
	config := ca.Client(t, root.Masters(t), "system:kcp:shard:beta", "system:kcp:shard")
	beta := shardtesting.StartShard(t, root, "beta", func(o *options.Options) {
		file := kubeconfig(t, config)
		o.Shard.RootKubeconfig, o.Shard.CacheKubeconfig = file, file
	})
	atRoot, asBeta := root.Client(t, root.Masters(t)), root.Client(t, config)
	shardtesting.Eventually(t, "beta has reported", func(context.Context) error {
		shard := getShard(t, atRoot, "beta")
		if shard.Spec.BaseURL != beta.Masters(t).Host || !conditionsv1alpha1.IsTrue(shard, conditionsv1alpha1.Ready) {
			return fmt.Errorf("it is %+v, %+v", shard.Spec, shard.Status)
		}
		return nil
	})
	in := shardtesting.In(t.Context(), "root")
	options := bootstrap.Options{ShardName: "gamma", BaseURL: "https://gamma.example"}
	for what, err := range map[string]error{
		"register another shard":                bootstrap.RegisterShard(t.Context(), asBeta, options, true),
		"create one without the name label":     asBeta.Create(in, &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "beta"}}),
		"read another":                          asBeta.Get(in, client.ObjectKey{Name: "root"}, &corev1alpha1.Shard{}),
		"read all":                              asBeta.List(in, &corev1alpha1.ShardList{}),
		"delete itself":                         asBeta.Delete(in, &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "beta"}}),
		"update the status of the Shard object": asBeta.Status().Update(in, getShard(t, atRoot, "beta")),
		"read exports in another cluster":       asBeta.Get(shardtesting.In(t.Context(), "system:shard"), client.ObjectKey{Name: "x"}, &apisv1alpha2.APIExport{}),
		"list the exports of root":              asBeta.List(in, &apisv1alpha2.APIExportList{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("a shard must not %s: %v", what, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func getShard(t *testing.T, c client.Client, name string) *corev1alpha1.Shard {
	t.Helper()
	shard := &corev1alpha1.Shard{}
	must(t, c.Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: name}, shard))
	return shard
}

// kubeconfig writes a client configuration with a certificate in the form that a shard requires.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"root": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"shard": {ClientCertificate: config.CertFile, ClientKey: config.KeyFile}},
		Contexts:       map[string]*clientcmdapi.Context{"shard-base": {Cluster: "root", AuthInfo: "shard"}},
		CurrentContext: "shard-base",
	}, file))
	return file
}

// startingShard is a shard that may never be ready.
type startingShard struct {
	url    string
	cancel context.CancelFunc
	ended  chan error
}

func startShard(t *testing.T, opts *options.Options) *startingShard {
	t.Helper()
	completed, err := opts.Complete()
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s := &startingShard{url: completed.Shard.BaseURL, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		server, err := shardserver.New(ctx, completed, nil)
		if err == nil {
			err = server.Run(ctx)
		}
		s.ended <- err
	}()
	t.Cleanup(cancel)
	return s
}

func (s *startingShard) get(t *testing.T, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(s.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

func (s *startingShard) stop(t *testing.T) {
	t.Helper()
	s.cancel()
	if err := <-s.ended; err != nil && !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("it ended with %v", err)
	}
}
