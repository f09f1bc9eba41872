package shardserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// readUsage returns the usage of a logical cluster by series, without the month.
func readUsage(t *testing.T, config *rest.Config, cluster string) (map[string]float64, error) {
	t.Helper()
	response, text := shardtesting.Send(t, shardtesting.At(config, cluster), http.MethodGet, "/metrics", "")
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("got %d: %s", response.StatusCode, text)
	}
	series := map[string]float64{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			before, _, _ := strings.Cut(name, "month=") // a test may run when a month ends
			series[strings.TrimRight(before, "{,")] += number
		}
	}
	return series, nil
}

// expectUsage waits until a logical cluster has this usage.
func expectUsage(t *testing.T, config *rest.Config, cluster string, want map[string]func(float64) bool) {
	t.Helper()
	shardtesting.Eventually(t, "the usage", func(context.Context) error {
		got, err := readUsage(t, config, cluster)
		if err != nil {
			return err
		}
		for series, holds := range want {
			if !holds(got[series]) {
				return fmt.Errorf("%s is %v, all: %v", series, got[series], got)
			}
		}
		return nil
	})
}

func equals(want float64) func(float64) bool  { return func(got float64) bool { return got == want } }
func atLeast(want float64) func(float64) bool { return func(got float64) bool { return got >= want } }

func TestUsage(t *testing.T) {
	often := func(o *options.Options) {
		o.UsageInterval = 200 * time.Millisecond
		// Whoever opens the metrics of the shard does not open the usage of workspaces.
		o.Authorization.AlwaysAllowPaths = append(slices.Clone(o.Authorization.AlwaysAllowPaths), "/metrics")
	}
	first := shardtesting.Start(t, often)
	directory := t.TempDir()
	startSecond := func() *shardtesting.Shard {
		return shardtesting.StartIn(t, directory, often, func(o *options.Options) {
			transport := first.Server.StorageTransport()
			to := &o.Etcd.StorageConfig.Transport
			to.ServerList, to.CertFile, to.KeyFile, to.TrustedCAFile = transport.ServerList, transport.CertFile, transport.KeyFile, transport.TrustedCAFile
			o.Authentication.ServiceAccounts.KeyFiles = []string{filepath.Join(first.Directory, "sa.key")}
			o.Controllers.Enable = false
		})
	}
	second := startSecond()
	admin := first.Admin(t)

	t.Run("is exact over two replicas and a restart", func(t *testing.T) {
		const clients, each = 4, 150
		cluster := first.NewWorkspace(t, "root", "counted").Spec.Cluster
		send := func(shards ...*shardtesting.Shard) {
			var senders sync.WaitGroup
			for i := range clients {
				config := shardtesting.At(shards[i%len(shards)].Masters(t), cluster)
				senders.Go(func() {
					client, err := rest.HTTPClientFor(config)
					for n := 0; n < each && err == nil; n++ {
						err = deleteMissing(t.Context(), client, config.Host)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			senders.Wait()
		}
		knowsCluster := func() { // a replica counts what its watch cache has
			shardtesting.Eventually(t, "the second replica to know the logical cluster", func(context.Context) error {
				_, err := readUsage(t, second.Masters(t), cluster)
				return err
			})
		}
		knowsCluster()
		send(first, second)
		if err := second.Stop(); err != nil {
			t.Fatal(err)
		}
		second = startSecond()
		knowsCluster()
		send(first, second)
		expectUsage(t, second.Masters(t), cluster, map[string]func(float64) bool{
			`atoll_usage_requests_total{class="write"`: equals(2 * clients * each),
			"atoll_usage_received_bytes_total":         atLeast(2 * clients * each * float64(len(deleteBody))),
			"atoll_usage_sent_bytes_total":             atLeast(2 * clients * each * 100), // each answer is a Status
			"atoll_usage_stored_objects":               atLeast(1),
			"atoll_usage_stored_bytes":                 atLeast(100),
		})
		if page := get(t, first.Masters(t), "/metrics"); page.StatusCode != http.StatusOK {
			t.Errorf("the metrics of the shard: got %d", page.StatusCode)
		}
	})

	t.Run("a watch is counted while it runs", func(t *testing.T) {
		cluster := first.NewWorkspace(t, "root", "watched").Spec.Cluster
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watching := shardtesting.Open(ctx, t, shardtesting.At(admin, cluster), http.MethodGet, "/api/v1/configmaps?watch=true", "")
		defer watching.Body.Close()
		expectUsage(t, admin, cluster, map[string]func(float64) bool{"atoll_usage_watch_seconds_total": atLeast(0.1)})
		cancel()
		expectUsage(t, admin, cluster, map[string]func(float64) bool{`atoll_usage_requests_total{class="watch"`: equals(1)})
	})

	t.Run("is for those who may get /metrics in the workspace", func(t *testing.T) {
		cluster := first.NewWorkspace(t, "root", "private").Spec.Cluster
		other := first.NewWorkspace(t, "root", "other").Spec.Cluster
		user := first.User(t)
		grantMetrics(t, first, other, "user")
		grantMetrics(t, first, "root", "user") // the role of those who scrape the shard gives no access to workspaces
		for name, refused := range map[string]*rest.Config{"a user of another workspace": user, "anonymous": rest.AnonymousClientConfig(user)} {
			if got := getStatus(t, shardtesting.At(refused, cluster), "/metrics"); got != http.StatusForbidden {
				t.Errorf("%s: got %d, want 403", name, got)
			}
		}
		if _, err := readUsage(t, user, other); err != nil {
			t.Errorf("with the permission: %v", err)
		}
		if got := getStatus(t, rest.AnonymousClientConfig(user), "/metrics"); got != http.StatusOK {
			t.Errorf("the metrics of the shard, which its flag opens: got %d, want 200", got)
		}
		for path, want := range map[string]int{"nosuchcluster": http.StatusNotFound, "*": http.StatusNotImplemented} {
			if got := getStatus(t, shardtesting.At(first.Masters(t), path), "/metrics"); got != want {
				t.Errorf("%s: got %d, want %d", path, got, want)
			}
		}
		if got, _ := shardtesting.Send(t, shardtesting.At(admin, cluster), http.MethodDelete, "/metrics", ""); got.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("DELETE: got %d, want 405: it resets the metrics of the shard", got.StatusCode)
		}
	})

	t.Run("the shard names who uses most", func(t *testing.T) {
		cluster := first.NewWorkspace(t, "root", "busy").Spec.Cluster
		config := shardtesting.At(admin, cluster)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var sending sync.WaitGroup
		defer sending.Wait()
		defer cancel()
		sending.Go(func() { // in each interval: the metrics have the last one
			ticker := time.NewTicker(20 * time.Millisecond)
			defer ticker.Stop()
			for ctx.Err() == nil {
				if err := deleteMissing(ctx, client, config.Host); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				<-ticker.C
			}
		})
		shardtesting.Eventually(t, "the workspace in the metrics of the shard", func(context.Context) error {
			_, page := shardtesting.Send(t, first.Masters(t), http.MethodGet, "/metrics", "")
			for _, name := range []string{"requests", "bytes"} {
				if want := fmt.Sprintf("atoll_usage_top_%s{cluster=%q,shard=\"root\"}", name, cluster); !strings.Contains(page, want) {
					return fmt.Errorf("no %s", want)
				}
			}
			return nil
		})
	})

	t.Run("ends with the logical cluster", func(t *testing.T) {
		workspace := first.NewWorkspace(t, "root", "ending")
		cluster := workspace.Spec.Cluster
		getStatus(t, shardtesting.At(admin, cluster), "/api/v1/namespaces/default")
		expectUsage(t, admin, cluster, map[string]func(float64) bool{`atoll_usage_requests_total{class="get"`: atLeast(1)})
		if err := first.Client(t, admin).Delete(shardtesting.In(t.Context(), "root"), workspace); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "no record", func(context.Context) error {
			if keys := first.Keys(t, "/~usage/"+cluster+"/"); len(keys) > 0 {
				return fmt.Errorf("got %q", keys)
			}
			if keys := first.Keys(t, "/core.kcp.io/logicalclusters/"+cluster+"/"); len(keys) > 0 {
				return fmt.Errorf("got %q", keys)
			}
			return nil
		})
	})

	t.Run("refused requests and names without a logical cluster leave nothing", func(t *testing.T) {
		cluster := first.NewWorkspace(t, "root", "refusing").Spec.Cluster
		for range 20 {
			if got := getStatus(t, shardtesting.At(first.User(t), cluster), "/api/v1/secrets"); got != http.StatusForbidden {
				t.Fatalf("got %d, want 403", got)
			}
			getStatus(t, shardtesting.At(first.Masters(t), "nosuchcluster"), "/api/v1/secrets")
			getStatus(t, shardtesting.At(first.Masters(t), "*"), "/api/v1/secrets")
		}
		// What follows them is counted, so that a flush has come after them.
		getStatus(t, shardtesting.At(admin, cluster), "/api/v1/namespaces/default")
		expectUsage(t, admin, cluster, map[string]func(float64) bool{`atoll_usage_requests_total{class="get"`: atLeast(1)})
		if got, err := readUsage(t, admin, cluster); err != nil || got[`atoll_usage_requests_total{class="list"`] != 0 {
			t.Errorf("got %v, %v, want no refused list", got, err)
		}
		if keys := first.Keys(t, "/~usage/"); slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "nosuch") || strings.Contains(key, "*") }) {
			t.Errorf("got %q", keys)
		}
	})
}

const deleteBody = `{"apiVersion":"v1","kind":"DeleteOptions"}`

// deleteMissing sends a request that changes nothing, and that nobody else sends.
func deleteMissing(ctx context.Context, client *http.Client, host string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, host+"/api/v1/namespaces/default/configmaps/missing", strings.NewReader(deleteBody))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusNotFound {
		err = fmt.Errorf("got %d, want 404", response.StatusCode)
	}
	return errors.Join(err, response.Body.Close())
}

// grantMetrics lets a user access a workspace and read its usage.
func grantMetrics(t *testing.T, s *shardtesting.Shard, cluster, name string) {
	t.Helper()
	grantPath(t, s, cluster, name, "/metrics")
}

// grantPath lets a user access a workspace and get a path in it.
func grantPath(t *testing.T, s *shardtesting.Shard, cluster, name, path string) {
	t.Helper()
	c := s.Client(t, s.Admin(t))
	ctx := shardtesting.In(t.Context(), cluster)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reads"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}}, {Verbs: []string{"get"}, NonResourceURLs: []string{path}}}}
	if cluster == "root" {
		role.Rules = role.Rules[1:]
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}}
	if err := errors.Join(c.Create(ctx, role), c.Create(ctx, binding)); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the permission", func(context.Context) error {
		if cluster == "root" {
			return nil
		}
		if got := getStatus(t, shardtesting.At(s.User(t), cluster), path); got != http.StatusOK {
			return fmt.Errorf("got %d, want 200", got)
		}
		return nil
	})
}
