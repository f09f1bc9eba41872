package virtual_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// watchStream is an open watch.
type watchStream struct{ events chan string }

// watch opens a watch that ends with the test.
func (e *env) watch(userName, path string) *watchStream {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	e.Cleanup(cancel)
	resp := shardtesting.Open(ctx, e, e.users[userName], http.MethodGet, path, "")
	if resp.StatusCode != http.StatusOK {
		e.Fatalf("watching %s: %s", path, resp.Status)
	}
	opened := &watchStream{events: make(chan string, 1000)}
	go func() {
		defer close(opened.events)
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var event struct {
				Type   string
				Object metav1.PartialObjectMetadata
			}
			if json.Unmarshal(lines.Bytes(), &event) == nil {
				opened.events <- event.Type + " " + event.Object.Annotations["kcp.io/cluster"]
			}
		}
		_ = lines.Err() // of a watch that the test has ended; of others the test sees that they ended
	}()
	return opened
}

// waitForEvent waits for an event of a logical cluster.
func (s *watchStream) waitForEvent(t *testing.T, kind, cluster string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	var seen []string
	for {
		select {
		case event, open := <-s.events:
			if !open {
				t.Fatalf("the watch ended after %v", seen)
			}
			if seen = append(seen, event); event == kind+" "+cluster {
				return
			}
		case <-timeout:
			t.Fatalf("no %s of %s in %v", kind, cluster, seen)
		}
	}
}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func deleteWorkspace(s *env, name string) {
	s.Helper()
	if err := s.masters.Delete(shardtesting.In(s.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		s.Fatal(err)
	}
	waitForDeletion(s, name)
}

func waitForDeletion(s *env, name string) {
	s.Helper()
	shardtesting.Eventually(s.T, "the deletion of "+name, func(context.Context) error {
		left := &tenancyv1alpha1.Workspace{}
		err := s.masters.Get(shardtesting.In(s.Context(), "root"), client.ObjectKey{Name: name}, left)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%v, status %+v", err, left.Status)
	})
}
