package shardclient

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
)

var shardsResource = corev1alpha1.SchemeGroupVersion.WithResource("shards")

// ShardReady checks /readyz of a shard. The error names the checks that fail.
func (c *Clients) ShardReady(ctx context.Context, shard desired.Shard) error {
	return c.checkServerReadyz(ctx, shard.Root(), shard.ServiceURL(), shard.Certificate("server"))
}

// CacheReady checks /readyz of a cache server, without a client certificate: the server has its own CA, and /readyz requires none.
func (c *Clients) CacheReady(ctx context.Context, cache *operatorv1alpha1.CacheServer) error {
	server := desired.NewCacheServer(cache)
	cas, err := c.cluster.ReadBundle(ctx, operatorv1alpha1.ConditionCertificatesReady, cache.Namespace, desired.Bundle{CA: server.CASecret()})
	if err != nil {
		return err
	}
	httpClient := c.newHTTPClient(cas)
	defer httpClient.CloseIdleConnections()
	return checkReadyz(ctx, httpClient, server.URL())
}

// ProxyReady checks /readyz of a front proxy.
func (c *Clients) ProxyReady(ctx context.Context, proxy desired.Proxy) error {
	return c.checkServerReadyz(ctx, proxy.Root(), proxy.ServiceURL(), proxy.Certificate("server"))
}

// VirtualWorkspaceReady checks /readyz of a standard virtual workspace server.
func (c *Clients) VirtualWorkspaceReady(ctx context.Context, virtualWorkspace desired.VirtualWorkspace) error {
	return c.checkServerReadyz(ctx, virtualWorkspace.Root(), virtualWorkspace.ServiceURL(), virtualWorkspace.Certificate("server"))
}

func (c *Clients) checkServerReadyz(ctx context.Context, root *operatorv1alpha1.RootShard, url, serving string) error {
	_, httpClient, err := c.connectPinned(ctx, root, pki.OperatorCertificate(root), url, serving)
	if err != nil {
		return err
	}
	defer httpClient.CloseIdleConnections()
	return checkReadyz(ctx, httpClient, url)
}

func checkReadyz(ctx context.Context, httpClient *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz?verbose", nil)
	if err != nil {
		return fmt.Errorf("requesting %s: %w", url, err)
	}
	res, err := httpClient.Do(req)
	if err != nil {
		return fmt.Errorf("requesting %s: %w", url, err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return nil
	}
	const maxBodySize = 16 << 10
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBodySize))
	if err != nil {
		return fmt.Errorf("requesting %s: %w", url, err)
	}
	return Errorf("/readyz is %d%s", res.StatusCode, failedChecks(string(body)))
}

// failedChecks returns the names of the checks that fail, from lines like "[-]etcd failed: reason withheld".
func failedChecks(page string) string {
	var names []string
	for line := range strings.SplitSeq(page, "\n") {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}

// MissingHeartbeats returns the shards of an installation, by their names inside it, whose heartbeats do not reach the root shard, with
// the reason. Heartbeats are replicated like all objects that shards publish; the root shard reports a missing one in the condition Ready
// of the Shard.
func (c *Clients) MissingHeartbeats(ctx context.Context, root *operatorv1alpha1.RootShard) (map[string]string, error) {
	missing := map[string]string{}
	err := c.withRoot(ctx, root, func(client dynamic.Interface) error {
		list, err := client.Resource(shardsResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing shards: %w", err)
		}
		for i := range list.Items {
			shard := &corev1alpha1.Shard{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, shard); err != nil {
				return fmt.Errorf("reading shard %s: %w", list.Items[i].GetName(), err)
			}
			if reason := missingHeartbeatReason(shard); reason != "" {
				missing[shard.Name] = reason
			}
		}
		return nil
	})
	return missing, err
}

// lagMetric is the metric of a shard for its replication lag, in reading and in publishing.
const lagMetric = "atoll_replication_lag_seconds"

// Lag returns the replication lag of a shard, from the replica that responds. It is 0 for a version without the metric.
func (c *Clients) Lag(ctx context.Context, shard desired.Shard) (time.Duration, error) {
	_, httpClient, err := c.connectShard(ctx, shard, privilegedCertificate(shard.Root()))
	if err != nil {
		return 0, err
	}
	defer httpClient.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, shard.ServiceURL()+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("requesting %s: %w", shard.ServiceURL(), err)
	}
	res, err := httpClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("requesting %s: %w", shard.ServiceURL(), err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, Errorf("/metrics is %d", res.StatusCode)
	}
	return maxMetric(res.Body, lagMetric)
}

// maxMetric returns the maximum value, in seconds, of a metric on a page.
func maxMetric(page io.Reader, metric string) (time.Duration, error) {
	var out time.Duration
	lines := bufio.NewScanner(page)
	const maxLineLength = 1 << 20
	lines.Buffer(nil, maxLineLength)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), metric)
		if !ok || (!strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ")) {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndex(rest, " ")+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", metric, err)
		}
		out = max(out, time.Duration(value*float64(time.Second)))
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	return out, nil
}

// missingHeartbeatReason is why the heartbeats of a shard are missing, or "". No heartbeats are expected from a shard without the
// condition.
func missingHeartbeatReason(shard *corev1alpha1.Shard) string {
	for _, condition := range shard.Status.Conditions {
		if condition.Type == conditionsv1alpha1.Ready && condition.Status != "True" {
			return fmt.Sprintf("%s: %s", condition.Reason, condition.Message)
		}
	}
	return ""
}
