package shardserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// versionOf returns the version of a revision in an epoch.
func versionOf(epoch, revision int64) string { return strconv.FormatInt(epoch<<50+revision, 10) }

func epochOf(t *testing.T, version string) int64 {
	t.Helper()
	parsed, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return parsed >> 50
}

// movable is a logical cluster of a shard that moves away and back again.
type movable struct {
	shard         *shardtesting.Shard
	name, key     string
	config        *rest.Config
	dynamic       dynamic.Interface
	epoch         int64
	configMaps    schema.GroupVersionResource
	widgets, cows schema.GroupVersionResource
}

// moveAndReturn gives the logical cluster the epochs of two moves, as these store them.
func (m *movable) moveAndReturn(t *testing.T) {
	t.Helper()
	const annotations = `"annotations":{`
	epoch := func(n int64) string {
		if n == 0 {
			return annotations
		}
		return annotations + fmt.Sprintf(`%q:"%d",`, corev1alpha1.EpochAnnotationKey, n)
	}
	movedAway := func(n int64) string {
		return epoch(n) + fmt.Sprintf(`%q:"elsewhere",`, corev1alpha1.MovedToAnnotationKey)
	}
	m.shard.ReplaceInKey(t, m.key, epoch(m.epoch), movedAway(m.epoch+1))
	objects := "/clusters/" + m.name + "/api/v1/namespaces/default/configmaps"
	shardtesting.Eventually(t, "the hand-over", func(context.Context) error {
		if response, body := shardtesting.Send(t, m.shard.Masters(t), "GET", objects, ""); response.StatusCode != http.StatusServiceUnavailable {
			return fmt.Errorf("%s: %s", response.Status, body)
		}
		return nil
	})
	m.shard.ReplaceInKey(t, m.key, movedAway(m.epoch+1), epoch(m.epoch+2))
	m.epoch += 2
	shardtesting.Eventually(t, "the return", func(context.Context) error {
		if response, body := shardtesting.Send(t, m.shard.Masters(t), "GET", objects, ""); response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", response.Status, body)
		}
		return nil
	})
}

func (m *movable) objects(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	return m.dynamic.Resource(gvr).Namespace("default")
}

func (m *movable) create(t *testing.T, gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	t.Helper()
	kind := map[schema.GroupVersionResource]string{m.configMaps: "ConfigMap", m.widgets: "Widget", m.cows: "Cow"}[gvr]
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{"test": "versions"}}}}
	object.SetGroupVersionKind(gvr.GroupVersion().WithKind(kind))
	created, err := m.objects(gvr).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// relists counts the lists of an informer, also streamed ones, except those at a version, which fail after a move.
type relists struct {
	next  http.RoundTripper
	lists atomic.Int64
}

func (r *relists) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(req)
	if err != nil {
		return response, err
	}
	query := req.URL.Query()
	isObjects := strings.HasSuffix(req.URL.Path, "/configmaps") || strings.HasSuffix(req.URL.Path, "/widgets") // not discovery
	isList := isObjects && (query.Get("watch") == "" || query.Get("sendInitialEvents") == "true") && (query.Get("resourceVersion") == "" || query.Get("resourceVersion") == "0")
	if isList && response.StatusCode == http.StatusOK {
		r.lists.Add(1)
	}
	return response, nil
}

func counted(config *rest.Config) (*rest.Config, *relists) {
	counter := &relists{}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counter.next = next
		return counter
	})
	return config, counter
}
