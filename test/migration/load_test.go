package migration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/migration/moveload"
)

func (e *env) testLoad(t *testing.T) {
	workspace, c := e.workspace(t, "loaded", installation.Alpha)
	config := e.Admin(t, "root:loaded")
	moveload.Fill(t, config, 300)
	e.fillLimits(t, workspace, c)
	l := moveload.Start(t, config)
	others := startOthers(t, config)
	for i, shard := range []string{installation.Beta, installation.Alpha} {
		e.moveTo(t, fmt.Sprint("loaded-", i), workspace, c, shard)
		others.checkLimits(t) // the first creations on this shard
	}
	l.End()
	others.end(t)
	if len(l.Reads.Failures) > 0 || l.Reads.Unavailable > 0 {
		t.Errorf("of %d reads %d were refused (%s), and fail with %q", l.Reads.Served, l.Reads.Unavailable, l.Reads.Refusal, l.Reads.Failures)
	}
	// A version of the origin may be refused as a conflict at the destination, once for each move.
	if len(l.Writes.Failures) > 2 {
		t.Errorf("writes fail with %q", l.Writes.Failures)
	}
	if l.Lost > 0 || l.Repeated > 0 || l.Writes.Served == 0 || l.Writes.Unavailable == 0 {
		t.Errorf("%d writes were served, %d refused, %d lost, %d done twice", l.Writes.Served, l.Writes.Unavailable, l.Lost, l.Repeated)
	}
	t.Logf("none of %d reads and %d of %d writes were refused; the slowest read took %s", l.Reads.Served, l.Writes.Unavailable, l.Writes.Served, l.Reads.Slowest)
	if stored, err := l.Stored(t.Context()); err != nil || stored != l.Value {
		t.Errorf("stored is %d (%v), acknowledged was %d", stored, err, l.Value)
	}
}

// fillLimits gives a workspace a quota of config maps and a limit of all objects, and waits until both are reached.
func (e *env) fillLimits(t *testing.T, workspace *tenancyv1alpha1.Workspace, c client.Client) {
	t.Helper()
	all := &corev1.ConfigMapList{}
	if err := c.List(t.Context(), all, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	const limit = "count/configmaps"
	hard := corev1.ResourceList{limit: *resource.NewQuantity(int64(len(all.Items)), resource.DecimalSI)}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "full"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if err := c.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	cluster := logicalcluster.MustParseName(workspace.Spec.Cluster)
	objects := e.objectsOn(t, installation.Alpha, []logicalcluster.Name{cluster})[cluster.String()]
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, corev1alpha1.MaxTotalObjectsAnnotationKey, objects)
	own := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}
	if err := c.Patch(t.Context(), own, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the limits are reached", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if used := quota.Status.Used[limit]; used.Value() != int64(len(all.Items)) {
			return fmt.Errorf("the quota counts %v", quota.Status)
		}
		object := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "beyond"}
		for _, object := range []client.Object{&corev1.ConfigMap{ObjectMeta: object}, &corev1.Secret{ObjectMeta: object}} {
			if err := c.Create(ctx, object, client.DryRunAll); !apierrors.IsForbidden(err) {
				return fmt.Errorf("another object: %v", err)
			}
		}
		return nil
	})
}

// otherInterval is the pause between two requests of a client.
const otherInterval = 20 * time.Millisecond

// others are clients of a workspace that moves, which never repeat a request by themselves: one reads lists, discovery and documents of
// OpenAPI, another one creates what the limits of the workspace forbid.
type others struct {
	client  rest.Interface
	stop    context.CancelFunc
	running sync.WaitGroup

	reads, refused, unavailable int
	failures                    []string
}

// readPaths are of all workspaces.
var readPaths = []string{
	"/api", "/apis", "/api/v1", "/apis/authorization.k8s.io/v1", "/openapi/v3", "/openapi/v3/api/v1", "/version",
	"/api/v1/namespaces/default/configmaps?limit=10", "/api/v1/namespaces/default/configmaps?resourceVersion=0&labelSelector=none",
}

func startOthers(t *testing.T, config *rest.Config) *others {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	ctx, stop := context.WithCancel(t.Context())
	o := &others{client: kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(), stop: stop}
	creating := make(chan []string)
	o.running.Go(func() {
		for n := 0; pause(ctx); n++ {
			if err := o.read(context.WithoutCancel(ctx), readPaths[n%len(readPaths)]); err != nil {
				o.failures = append(o.failures, err.Error())
			}
			o.reads++
		}
		o.failures = append(o.failures, <-creating...)
	})
	o.running.Go(func() {
		var failures []string
		for n := 0; pause(ctx); n++ {
			switch err := o.create(context.WithoutCancel(ctx), n); {
			case isLimit(err):
				o.refused++
			case apierrors.IsServiceUnavailable(err):
				o.unavailable++
			default:
				failures = append(failures, fmt.Sprintf("a creation beyond the limits: %v", err))
			}
		}
		creating <- failures
	})
	return o
}

func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(otherInterval):
		return true
	}
}

func (o *others) read(ctx context.Context, path string) error {
	result := o.client.Get().MaxRetries(0).RequestURI(path).SetHeader("Accept", acceptOf(path)).Do(ctx)
	status := 0
	if result.StatusCode(&status); result.Error() != nil || status != http.StatusOK {
		return fmt.Errorf("%s: %d, %w", path, status, result.Error())
	}
	return nil
}

// acceptOf returns what clients of Kubernetes accept: /api and /apis with all resources.
func acceptOf(path string) string {
	if path == "/api" || path == "/apis" {
		return discovery.AcceptV2 + ",application/json"
	}
	return "application/json"
}

// create creates an object, by turns one that the quota forbids and one that the limit of all objects forbids.
func (o *others) create(ctx context.Context, n int) error {
	meta := metav1.ObjectMeta{Name: fmt.Sprint("beyond-", n)}
	request := o.client.Post().MaxRetries(0).Namespace(metav1.NamespaceDefault)
	if n%2 == 0 {
		return request.Resource("configmaps").Body(&corev1.ConfigMap{ObjectMeta: meta}).Do(ctx).Error()
	}
	return request.Resource("secrets").Body(&corev1.Secret{ObjectMeta: meta}).Do(ctx).Error()
}

func isLimit(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "exceeded quota") || strings.Contains(err.Error(), "total object count limit reached"))
}

// checkLimits fails unless the limits forbid creations now.
func (o *others) checkLimits(t *testing.T) {
	t.Helper()
	for n := range 2 {
		if err := o.create(t.Context(), n); !isLimit(err) {
			t.Errorf("a creation beyond the limits right after a move: %v", err)
		}
	}
}

// end stops the clients, and fails if anything else has happened than what may.
func (o *others) end(t *testing.T) {
	t.Helper()
	o.stop()
	o.running.Wait()
	if len(o.failures) > 0 {
		t.Errorf("of %d reads of lists, discovery and OpenAPI, and %d creations beyond the limits: %q", o.reads, o.refused+o.unavailable, o.failures)
	}
	t.Logf("%d reads of lists, discovery and OpenAPI; %d creations were refused by limits, %d because the workspace moves", o.reads, o.refused, o.unavailable)
	if o.reads < len(readPaths) || o.refused == 0 {
		t.Error("these are too few")
	}
}
