package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

// widgets are the resource that the provider on shard alpha exports.
var widgets = schema.GroupResource{Group: "faults.example.com", Resource: "widgets"}

// env is an installation with a consumer of the provider's API on each shard, and a writer for each consumer.
type env struct {
	*installation.Installation
	*testing.T
	// parentT is the test whose end stops the servers, whichever subtest T is.
	parentT    *testing.T
	admin      client.Client
	restClient rest.Interface
	provider   string
	// consumers and writers are by shard.
	consumers map[string]string
	writers   map[string]*writer
}

func newEnv(t *testing.T, options sharded.Options) *env {
	t.Helper()
	if options.Shards == nil {
		options.Shards = []string{installation.Root, installation.Alpha, installation.Beta}
	}
	i := installation.StartWith(t, binaries, options)
	config := i.Admin(t, "root")
	config.Host = i.URL // requests carry the logical cluster in their context
	admin, err := loopback.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &env{Installation: i, T: t, parentT: t, admin: admin, restClient: clients.CoreV1().RESTClient(), consumers: map[string]string{}, writers: map[string]*writer{}}
	s.provider = s.createWorkspace("provider", installation.Alpha)
	shardtesting.NewExport(t, admin, s.provider, "widgets", widgets, "Widget")
	for _, shard := range i.Shards() {
		cluster := s.createWorkspace("consumer-"+shard, shard)
		s.bind(cluster)
		s.consumers[shard] = cluster
		s.writers[shard] = s.startWriter(cluster, "write")
	}
	return s
}

// createWorkspace creates a workspace below root on a shard, and returns its logical cluster.
func (e *env) createWorkspace(name, shard string) string {
	e.Helper()
	return shardtesting.NewWorkspace(e.T, e.admin, "root", name, shardtesting.OnShard(shard)).Spec.Cluster
}

func (e *env) bind(cluster string) {
	e.Helper()
	shardtesting.Bind(e.T, e.admin, cluster, e.provider, "widgets")
}

// restart starts a server that has ended.
func (e *env) restart(server string) { e.Restart(e.parentT, server) }

// requestWorkspace creates a workspace and does not wait.
func (e *env) requestWorkspace(name, shard string) *tenancyv1alpha1.Workspace {
	e.Helper()
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	shardtesting.OnShard(shard)(workspace)
	if err := e.admin.Create(shardtesting.In(e.Context(), "root"), workspace); err != nil {
		e.Fatal(err)
	}
	return workspace
}

// waitReady waits until a workspace below root is Ready.
func (e *env) waitReady(name string) {
	e.Helper()
	shardtesting.WaitReady(e.T, e.admin, "root", name)
}

// createWidget creates a bound object in a logical cluster.
func (e *env) createWidget(ctx context.Context, cluster, name string) error {
	body := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":%q}}`, widgets.Group, name)
	return e.restClient.Post().AbsPath("/clusters/"+cluster+"/apis/"+widgets.Group+"/v1/namespaces/default/"+widgets.Resource).
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
}

// expectServing checks that a fault of another server fails no request: it waits until writes have continued for a
// while, and fails if one has failed since the given counts, or a bound object cannot be written.
func (e *env) expectServing(since failureCounts, shards ...string) {
	e.Helper()
	const enough = 20
	from := e.acknowledgedCounts()
	for _, shard := range shards {
		w := e.writers[shard]
		shardtesting.Eventually(e.T, "writes continue on "+shard, func(context.Context) error {
			if got := w.acknowledgedCount() - from[shard]; got < enough {
				return fmt.Errorf("%d of %d; last failure: %v", got, enough, w.lastFailure())
			}
			return nil
		})
	}
	for _, shard := range shards {
		w := e.writers[shard]
		if failures := w.failureCount() - since[shard]; failures > 0 {
			e.Errorf("%d requests failed on %s, the last with: %v", failures, shard, w.lastFailure())
		}
		if err := e.createWidget(e.Context(), e.consumers[shard], fmt.Sprint("w", w.acknowledgedCount())); err != nil {
			e.Errorf("writing a bound object on %s: %v", shard, err)
		}
	}
}

// waitForRecovery waits until writes on shards succeed again, however many have failed.
func (e *env) waitForRecovery(shards ...string) {
	e.Helper()
	for _, shard := range shards {
		from := e.writers[shard].acknowledgedCount()
		shardtesting.Eventually(e.T, "writes on "+shard+" succeed again", func(context.Context) error {
			if e.writers[shard].acknowledgedCount() < from+5 {
				return e.writers[shard].lastFailure()
			}
			return nil
		})
	}
}

// checkStatus returns the status of a request for a logical cluster through the front proxy, as an error.
func (e *env) checkStatus(path string) error {
	err := e.admin.List(shardtesting.In(e.Context(), path), &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}})
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return fmt.Errorf("%d: %w", status.Status().Code, err)
	}
	return err
}

// scaled returns how much a test does: the full amount where ATOLL_FAULTS is "full", as it is for `make faults`. CI has time
// for the short one.
func scaled[T any](short, full T) T {
	if isFull() {
		return full
	}
	return short
}

func isFull() bool { return os.Getenv("ATOLL_FAULTS") == "full" }

// metric returns the value of the series of a server whose text begins with a name and labels, as "name{label=", and the
// highest if there are several. Without a series it returns an error.
func (e *env) metric(ctx context.Context, server, series string) (float64, error) {
	config := e.metrics(server)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	out, found := math.Inf(-1), false
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), series) {
			continue
		}
		value, err := strconv.ParseFloat(lines.Text()[strings.LastIndex(lines.Text(), " ")+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		out, found = max(out, value), true
	}
	if !found {
		return 0, fmt.Errorf("%s of %s has no %s: %s", config.Host, server, series, response.Status)
	}
	return out, lines.Err()
}

// metrics returns a client configuration that may read the metrics of a server.
func (e *env) metrics(server string) *rest.Config {
	if server != sharded.FrontProxy {
		return e.Masters(e.T, server)
	}
	config := e.Admin(e.T, "root")
	config.Host = e.URL
	return config
}
