//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// rolloutOrder is the order of the Deployments: cache, root shard, shards, proxies.
var rolloutOrder = []string{
	"cache-cache-server", "root-kcp", "alpha-shard-kcp", "beta-shard-kcp", "frontproxy-front-proxy", "root-proxy",
}

// testRolloutUnderLoad gives all objects another image at once, while a workspace on each shard is written and read
// continuously, and kills the operator halfway.
func (in *installation) testRolloutUnderLoad(t *testing.T) {
	next := os.Getenv(envNextImage)
	if next == "" {
		t.Skip(envNextImage + " is not set")
	}
	repository, tag, _ := cutImageTag(next)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	loads := map[string]*load{}
	for shard, consumer := range in.consumers {
		loads[shard] = newLoad(t, consumer)
		running.Go(func() { loads[shard].run(ctx) })
	}
	started := time.Now()
	// Changes are made in reverse: the order of the rollout does not depend on the order of changes.
	in.setImage(t, "FrontProxy", "frontproxy", repository, tag)
	in.patch(t, "RootShard", "root", fmt.Sprintf(`{"spec":{"proxy":{"image":{"repository":%q,"tag":%q}}}}`, repository, tag))
	for _, shard := range []string{"beta", "alpha"} {
		in.setImage(t, "Shard", shard, repository, tag)
	}
	in.setImage(t, "RootShard", "root", repository, tag)
	in.setImage(t, "CacheServer", "cache", repository, tag)

	order, killed := []string{}, false
	eventually(t, 12*time.Minute, "completion of the rollout", func(ctx context.Context) error {
		rolling, err := in.trackRollout(ctx, next, &order)
		if err != nil {
			return err
		}
		if len(rolling) > 1 {
			t.Errorf("%v are rolled out concurrently", rolling)
		}
		in.checkAvailable(t)
		if !killed && slices.Contains(order, "alpha-shard-kcp") {
			killed = true
			pod := in.operatorPod(t)
			t.Logf("%.0fs killing the operator, while %v is rolled out", time.Since(started).Seconds(), rolling)
			if err := in.host.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
				return err
			}
		}
		if len(order) < len(rolloutOrder) {
			return fmt.Errorf("rolled out so far: %v", order)
		}
		return in.allReady(ctx)
	})
	t.Logf("%.0fs in total", time.Since(started).Seconds())
	stop()
	running.Wait()
	if !slices.Equal(order, rolloutOrder) {
		t.Errorf("rolled out in the order %v, want %v", order, rolloutOrder)
	}
	for _, shard := range slices.Sorted(maps.Keys(loads)) {
		loads[shard].report(t, shard)
	}
	if probes := in.remainingProbes(t); len(probes) > 0 {
		t.Errorf("probe workspaces remain after the rollout: %v", probes)
	}
}

// trackRollout appends to order the Deployments that have the next image, and returns those whose pods do not all run
// it.
func (in *installation) trackRollout(ctx context.Context, next string, order *[]string) (rolling []string, err error) {
	deployments := &appsv1.DeploymentList{}
	if err := in.host.List(ctx, deployments, client.InNamespace(in.namespace)); err != nil {
		return nil, err
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if d.Spec.Template.Spec.Containers[0].Image != next {
			continue
		}
		if !slices.Contains(*order, d.Name) {
			*order = append(*order, d.Name)
		}
		if s := d.Status; s.ObservedGeneration != d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.Replicas != *d.Spec.Replicas || s.ReadyReplicas != *d.Spec.Replicas {
			rolling = append(rolling, d.Name)
		}
	}
	return rolling, nil
}

// checkAvailable checks that all objects stay available and in their phase, whatever is rolled out.
func (in *installation) checkAvailable(t *testing.T) {
	t.Helper()
	for _, u := range in.listCustomResources(t) {
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		c := condition(u, operatorv1alpha1.ConditionAvailable)
		if c == nil || c.Status != metav1.ConditionTrue || phase != "Running" && phase != "Ready" {
			t.Errorf("%s %s: phase %s, Available is %+v", u.GetKind(), u.GetName(), phase, c)
		}
	}
}

func (in *installation) deploymentImage(t *testing.T, deployment string) string {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := in.host.Get(t.Context(), client.ObjectKey{Namespace: in.namespace, Name: deployment}, d); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

// remainingProbes returns the workspaces of root that were created to probe the health of shards.
func (in *installation) remainingProbes(t *testing.T) []string {
	t.Helper()
	var names []string
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("WorkspaceList"))
	if err := newClient(t, workspaceConfig(in.admin, "root")).List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		if strings.HasPrefix(item.Name, "rollout-probe-") && item.DeletionTimestamp == nil {
			names = append(names, item.Name)
		}
	}
	return names
}

// load writes one object repeatedly and reads it after each write.
type load struct {
	client   client.Client
	requests int
	failures []string
	longest  time.Duration
}

func newLoad(t *testing.T, w workspace) *load {
	t.Helper()
	return &load{client: newClient(t, w.config)}
}

func (l *load) run(ctx context.Context) {
	const name = "load"
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	l.measure(ctx, "create", func() error { return l.client.Create(ctx, object) })
	for n := 0; ctx.Err() == nil; n++ {
		value := strconv.Itoa(n)
		patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"data":{"n":%q}}`, value)))
		written := object.DeepCopy()
		l.measure(ctx, "patch", func() error { return l.client.Patch(ctx, written, patch) })
		read := &corev1.ConfigMap{}
		l.measure(ctx, "get", func() error {
			err := l.client.Get(ctx, client.ObjectKeyFromObject(object), read)
			if err == nil && read.Data["n"] != value {
				return fmt.Errorf("read %q after %q was written", read.Data["n"], value)
			}
			return err
		})
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond): // leaves processor time for the replacement of pods
		}
	}
}

func (l *load) measure(ctx context.Context, verb string, request func() error) {
	started := time.Now()
	err := request()
	if ctx.Err() != nil {
		return
	}
	l.requests++
	l.longest = max(l.longest, time.Since(started))
	if err != nil {
		l.failures = append(l.failures, fmt.Sprintf("%s %s: %v", started.Format(time.TimeOnly), verb, err))
	}
}

func (l *load) report(t *testing.T, shard string) {
	t.Helper()
	t.Logf("%s: %d requests, %d failed, the longest took %s", shard, l.requests, len(l.failures), l.longest.Round(time.Millisecond))
	if len(l.failures) > 0 {
		const enough = 10
		t.Errorf("requests to a workspace on %s failed:\n%s", shard, strings.Join(l.failures[:min(len(l.failures), enough)], "\n"))
	}
}
