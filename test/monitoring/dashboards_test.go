package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/internal/background"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/debian"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/programs"
	"github.com/atoll-dev/atoll/test/sharded"
)

// scrapeConfig is a scrape configuration of Prometheus.
type scrapeConfig struct {
	JobName        string         `json:"job_name"`
	Scheme         string         `json:"scheme"`
	HonorLabels    bool           `json:"honor_labels"`
	TLSConfig      map[string]any `json:"tls_config,omitempty"`
	StaticConfigs  []staticConfig `json:"static_configs"`
	ScrapeInterval string         `json:"scrape_interval"`
}

type staticConfig struct {
	Targets []string `json:"targets"`
}

// TestDashboards runs every query of the dashboards on a Prometheus that scrapes a loaded installation of three shards, and an operator
// beside it: none returns nothing.
func TestDashboards(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	program, bin := debian.Program(t, "prometheus", "prometheus"), t.TempDir()
	if err := installation.Build(t.Context(), "../..", bin); err != nil {
		t.Fatal(err)
	}
	i := installation.Start(t, bin)
	load(t, i)
	operator := startOperator(t, bin)
	prometheus := startPrometheus(t, program, append(scrapeConfigs(t, i), scrapeConfig{
		JobName: "atoll-operator", Scheme: "http", HonorLabels: true, ScrapeInterval: "1s", StaticConfigs: []staticConfig{{Targets: []string{operator}}},
	}))
	for _, name := range []string{"shards", "front-proxies", "cache-servers", "operator"} {
		for _, expr := range queries(t, name) {
			shardtesting.Eventually(t, fmt.Sprintf("%s: %s to return something", name, expr), func(ctx context.Context) error {
				return query(ctx, prometheus, expr)
			})
		}
	}
	checkMetricsPage(t, prometheus)
}

// scrapeConfigs is the configuration in docs/monitoring.md, with the servers of a test and the users of config/prometheus/servers.
func scrapeConfigs(t *testing.T, i *installation.Installation) []scrapeConfig {
	t.Helper()
	directory := t.TempDir()
	config := func(job string, credentials *rest.Config, servers ...string) scrapeConfig {
		file := func(name string, content []byte, path string) string {
			if path != "" {
				return path
			}
			written := filepath.Join(directory, job+"-"+name)
			if err := os.WriteFile(written, content, 0o600); err != nil {
				t.Fatal(err)
			}
			return written
		}
		c := scrapeConfig{JobName: job, Scheme: "https", HonorLabels: true, ScrapeInterval: "1s", StaticConfigs: []staticConfig{{}}, TLSConfig: map[string]any{
			"ca_file": file("ca.crt", credentials.CAData, credentials.CAFile), "cert_file": file("tls.crt", credentials.CertData, credentials.CertFile), "key_file": file("tls.key", credentials.KeyData, credentials.KeyFile),
		}}
		for _, server := range servers {
			c.StaticConfigs[0].Targets = append(c.StaticConfigs[0].Targets, strings.TrimPrefix(i.ServerURL(server), "https://"))
		}
		return c
	}
	i.Bind(t, "root", "system:monitoring", "prometheus")
	return []scrapeConfig{
		config("atoll-shard", i.User(t, "root", "prometheus", "system:kcp:admin"), i.Shards()...),
		config("atoll-front-proxy", i.User(t, "root", "prometheus"), sharded.FrontProxy),
		config("atoll-cache-server", i.Masters(t, sharded.CacheServer), sharded.CacheServer),
	}
}

// startPrometheus runs Prometheus until the end of the test, and returns its URL.
func startPrometheus(t *testing.T, program string, configs []scrapeConfig) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"scrape_configs": configs})
	if err != nil {
		t.Fatal(err)
	}
	directory, address := t.TempDir(), programs.FreeAddress(t)
	if err := os.WriteFile(filepath.Join(directory, "prometheus.yml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	programs.Start(t, directory, program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address="+address, "--log.level=error")
	return "http://" + address
}

// load creates, reads and deletes objects in a workspace of each shard until the end of the test.
func load(t *testing.T, i *installation.Installation) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running background.Group
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for _, shard := range i.Shards() {
		workspace := i.NewWorkspace(t, "load-"+shard, "tenant", shardtesting.OnShard(shard))
		c, err := client.New(workspace, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			for background.Sleep(ctx, 50*time.Millisecond) {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "load"}}
				// The responses to the load do not matter: the queries show whether they return any series.
				_ = c.Create(ctx, object)
				_ = c.List(ctx, &corev1.ConfigMapList{})
				_ = c.Delete(ctx, object)
			}
		})
	}
}

// queries returns the queries of a dashboard for all instances.
func queries(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(config, "dashboards", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			found = append(found, strings.ReplaceAll(target.Expr, "$instance", ".*"))
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no queries", name)
	}
	return found
}

// query returns an error if Prometheus finds nothing.
func query(ctx context.Context, prometheus, expr string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, prometheus+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result []any `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" || len(answer.Data.Result) == 0 {
		return fmt.Errorf("no series %s", answer.Error)
	}
	return nil
}
