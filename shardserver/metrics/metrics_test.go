package metrics_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// scrape returns the value of every time series, by its name and labels.
func scrape(t *testing.T, s *shardtesting.Shard) map[string]string {
	t.Helper()
	page, err := s.Kubernetes(t, s.Masters(t)).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]string{}
	for line := range strings.SplitSeq(string(page), "\n") {
		if end := strings.LastIndexByte(line, ' '); end > 0 && line[0] != '#' {
			series[line[:end]] = line[end+1:]
		}
	}
	return series
}

// sendRequests sends typical requests to a workspace: every verb, a watch, a refused request, a review.
func sendRequests(ctx context.Context, c kubernetes.Interface) error {
	maps := c.CoreV1().ConfigMaps("default")
	created, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	watching, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion})
	if err != nil {
		return err
	}
	defer watching.Stop()
	created.Data = map[string]string{"a": "b"}
	_, updated := maps.Update(ctx, created, metav1.UpdateOptions{})
	_, patched := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"c":"d"}}`), metav1.PatchOptions{})
	_, applied := maps.Patch(ctx, "b", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`), metav1.PatchOptions{FieldManager: "test"})
	_, got := maps.Get(ctx, "a", metav1.GetOptions{})
	_, listed := maps.List(ctx, metav1.ListOptions{})
	if _, err := maps.Get(ctx, "missing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("getting what is missing: %w", err)
	}
	_, discovered := c.Discovery().ServerGroups()
	deleted := maps.Delete(ctx, "b", metav1.DeleteOptions{})
	return errors.Join(updated, patched, applied, got, listed, discovered, deleted)
}

// grownSeries creates and deletes 200 workspaces, and returns how many series are new. A status code that did not occur before (a race that ends in
// 404, for example) may add a time series. Their number is bounded by kinds, verbs and codes, so they are few and contain no names.
func grownSeries(t *testing.T, s *shardtesting.Shard, prefix string) (grown int) {
	t.Helper()
	before := scrape(t, s)
	createAndDeleteWorkspaces(t, s, prefix, 200)
	after := scrape(t, s)
	for series := range after {
		if _, ok := before[series]; !ok && !isPeriodicSeries(series) {
			grown++
			t.Logf("new: %s", series)
		}
		if strings.Contains(series, "cluster=") || strings.Contains(series, prefix) {
			t.Errorf("names a workspace: %s", series)
		}
	}
	t.Logf("%d series before, %d after 200 workspaces", len(before), len(after))
	return grown
}

// createAndDeleteWorkspaces creates workspaces, uses each, and deletes all.
func createAndDeleteWorkspaces(t *testing.T, s *shardtesting.Shard, prefix string, count int) {
	t.Helper()
	c := s.Client(t, s.Admin(t))
	root := shardtesting.In(context.Background(), "root")
	names := make(chan string, count)
	for i := range count {
		names <- fmt.Sprintf("%s-%d", prefix, i)
	}
	close(names)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for name := range names {
				workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec: tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}}}
				if err := c.Create(root, workspace); err != nil {
					t.Errorf("creating %s: %v", name, err)
					return
				}
				cluster := s.WaitReady(t, "root", name).Spec.Cluster
				if err := sendRequests(t.Context(), s.Kubernetes(t, shardtesting.At(s.Admin(t), cluster))); err != nil {
					t.Errorf("using %s: %v", name, err)
				}
				if err := c.Delete(root, workspace); err != nil {
					t.Errorf("deleting %s: %v", name, err)
				}
			}
		})
	}
	workers.Wait()
	shardtesting.Eventually(t, "the workspaces are gone", func(ctx context.Context) error {
		var left tenancyv1alpha1.WorkspaceList
		if err := c.List(shardtesting.In(ctx, "root"), &left, &client.ListOptions{}); err != nil {
			return err
		}
		for _, workspace := range left.Items {
			if strings.HasPrefix(workspace.Name, prefix) {
				return fmt.Errorf("%s is left", workspace.Name)
			}
		}
		return nil
	})
}

// watchList watches objects and returns after the initial events.
func watchList(t *testing.T, c rest.Interface, objects string) {
	t.Helper()
	stream, err := c.Get().AbsPath(objects).Param("watch", "true").Param("sendInitialEvents", "true").Param("allowWatchBookmarks", "true").
		Param("resourceVersionMatch", "NotOlderThan").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		if strings.Contains(lines.Text(), metav1.InitialEventsAnnotationKey) {
			return
		}
	}
	t.Fatal("the watch ended before the initial events did")
}

// isPeriodicSeries reports whether a time series is one per kind that storage sets once a minute, hence at any time
// after the start. It does not depend on workspaces.
func isPeriodicSeries(series string) bool {
	return slices.ContainsFunc([]string{
		"apiserver_storage_objects{", "apiserver_resource_objects{", "apiserver_resource_size_estimate_bytes{", "apiserver_storage_db_total_size_in_bytes{",
		"etcd_bookmark_", "apiserver_watch_cache_events_dispatched_total{",
	}, func(family string) bool { return strings.HasPrefix(series, family) }) || strings.Contains(series, `operation="listWithCount"`)
}

func TestShardMetrics(t *testing.T) {
	s := shardtesting.Start(t)

	t.Run("counts by phase", func(t *testing.T) {
		before := scrape(t, s)
		s.NewWorkspace(t, "root", "counted")
		after := scrape(t, s)
		for series, more := range map[string]int{
			`kcp_workspace_count{phase="Ready",shard="root"}`:           1,
			`kcp_workspace_count{phase="Unavailable",shard="root"}`:     0,
			`kcp_logicalcluster_count{phase="Ready",shard="root"}`:      1,
			`kcp_logicalcluster_count{phase="Scheduling",shard="root"}`: 0,
			`kcp_indexed_logicalclusters{shard="root"}`:                 1,
		} {
			oldValue, err := strconv.Atoi(before[series])
			newValue, newErr := strconv.Atoi(after[series])
			if err != nil || newErr != nil || newValue-oldValue != more {
				t.Errorf("%s was %q and is %q, want %d more", series, before[series], after[series], more)
			}
		}
	})

	t.Run("bindings and exports by status", func(t *testing.T) {
		all := &apisv1alpha2.APIBindingList{}
		shardtesting.Eventually(t, "the bindings of a new shard are Bound", func(ctx context.Context) error {
			if err := s.Client(t, s.Masters(t)).List(logicalcluster.With(ctx, logicalcluster.Wildcard), all); err != nil {
				return err
			}
			if bound := scrape(t, s)[`kcp_apibinding_phase{phase="Bound",shard="root"}`]; bound != strconv.Itoa(len(all.Items)) {
				return fmt.Errorf("%s of %d", bound, len(all.Items))
			}
			return nil
		})
		before := scrape(t, s)
		provider := s.NewWorkspace(t, "root", "provider").Spec.Cluster
		s.NewExport(t, provider, "widgets", schema.GroupResource{Group: "example.io", Resource: "widgets"}, "Widget")
		s.Bind(t, provider, provider, "widgets")
		shardtesting.Eventually(t, "the counts", func(context.Context) error {
			after := scrape(t, s)
			for series, more := range map[string]int{
				`kcp_apibinding_phase{phase="Bound",shard="root"}`:                                                      3, // two of its type
				`kcp_apibinding_phase{phase="Binding",shard="root"}`:                                                    0,
				`kcp_apibinding_condition_status{condition="Ready",shard="root",status="True"}`:                         3,
				`kcp_apibinding_condition_status{condition="BindingResourceDeleteSuccess",shard="root",status="False"}`: 0,
				`kcp_apiexport_condition_status{condition="IdentityValid",shard="root",status="True"}`:                  1,
				`kcp_apiexport_condition_status{condition="IdentityValid",shard="root",status="False"}`:                 0,
			} {
				oldValue, err := strconv.Atoi(before[series])
				newValue, newErr := strconv.Atoi(after[series])
				if err != nil || newErr != nil || newValue-oldValue != more {
					return fmt.Errorf("%s was %q and is %q, want %d more", series, before[series], after[series], more)
				}
			}
			for _, series := range []string{`kcp_apibinding_ready_duration_ms_count{shard="root"}`, `kcp_apiexport_ready_duration_ms_count{shard="root"}`} {
				if count, err := strconv.Atoi(after[series]); err != nil || count == 0 {
					return fmt.Errorf("%s is %q", series, after[series])
				}
			}
			return nil
		})
	})

	t.Run("the number of series does not grow with workspaces", func(t *testing.T) {
		// Time series of first events (a first deletion, a first conflict) do not depend on the number of workspaces.
		createAndDeleteWorkspaces(t, s, "warm", 40)
		// Only a deletion that takes seconds has its phase written, so one request here is rare, and has dozens of series: once it has
		// occurred, more workspaces have no more series.
		const maxNew, rounds = 20, 3
		for round := 1; ; round++ {
			grown := grownSeries(t, s, fmt.Sprintf("more-%d", round))
			if grown <= maxNew {
				return
			}
			if round == rounds {
				t.Errorf("%d series are new after 200 more workspaces, want at most %d", grown, maxNew)
				return
			}
		}
	})

	t.Run("label values do not contain names that tenants choose", func(t *testing.T) {
		workspace := s.NewWorkspace(t, "root", "inventive")
		config := shardtesting.At(s.Admin(t), workspace.Spec.Cluster)
		c := s.Kubernetes(t, config).Discovery().RESTClient()
		useDefinition := func(word string) {
			const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
			definition := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]ss.%[1]s.example.com"},
				"spec":{"group":"%[1]s.example.com","scope":"Cluster","names":{"plural":"%[1]ss","kind":"%[1]s"},
				"versions":[{"name":"v1%[1]s","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, word)
			if err := c.Post().AbsPath(definitions).Body([]byte(definition)).Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
			objects := fmt.Sprintf("/apis/%[1]s.example.com/v1%[1]s/%[1]ss", word)
			object := fmt.Sprintf(`{"apiVersion":"%[1]s.example.com/v1%[1]s","kind":"%[1]s","metadata":{"name":"a"}}`, word)
			shardtesting.Eventually(t, "the definition is served", func(ctx context.Context) error {
				return c.Post().AbsPath(objects).Body([]byte(object)).Do(ctx).Error()
			})
			for _, path := range []string{objects, objects + "/a", objects + "/a/" + word, "/apis/" + word + "/v1/" + word, "/api/v1/" + word, "/" + word} {
				_ = c.Get().AbsPath(path).Do(t.Context()).Error() // most do not exist
			}
			_ = c.Patch(types.ApplyYAMLPatchType).AbsPath(objects+"/b").Param("fieldManager", word).Body([]byte(strings.Replace(object, `"a"`, `"b"`, 1))).Do(t.Context()).Error()
			watchList(t, c, objects)
			_ = c.Delete().AbsPath(objects).Param("labelSelector", word).Do(t.Context()).Error()
			if err := errors.Join(c.Delete().AbsPath(objects+"/a").Do(t.Context()).Error(), c.Delete().AbsPath(definitions, fmt.Sprintf("%[1]ss.%[1]s.example.com", word)).Do(t.Context()).Error()); err != nil {
				t.Error(err)
			}
		}
		for i := range 5 {
			useDefinition(fmt.Sprintf("first%d", i))
		}
		// Series that begin for other reasons, such as a status code that did not occur before or a replica that arrives late, begin once: with
		// names in labels, each ten names would add ten.
		counted, grown := false, 0
		for round := range 3 {
			before := scrape(t, s)
			for i := range 10 {
				useDefinition(fmt.Sprintf("word%d%d", round, i))
			}
			grown = 0
			for series := range scrape(t, s) {
				counted = counted || strings.HasPrefix(series, "apiserver_request_total{") && strings.Contains(series, `resource="unexpected"`)
				if _, ok := before[series]; !ok {
					grown++
					t.Logf("new: %s", series)
				}
				if strings.Contains(series, "word") {
					t.Errorf("names what a tenant chose: %s", series)
				}
			}
			if grown <= 5 {
				break
			}
		}
		if grown > 5 {
			t.Errorf("%d series are new after ten names", grown)
		}
		if !counted {
			t.Error("requests to custom resources are not counted at all")
		}
	})
}
