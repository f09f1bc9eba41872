package shardserver_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const watchedDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.seats.example.com"},
"spec":{"group":"seats.example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,
"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// TestWatchesReleaseSeats opens a watch of each resource, with one seat for the user: a watch that keeps its seat after
// it has sent its initial events would make all further requests of the user wait.
func TestWatchesReleaseSeats(t *testing.T) {
	shard := shardtesting.Start(t, func(o *options.Options) {
		o.ServerRun.MaxRequestsInFlight, o.ServerRun.MaxMutatingRequestsInFlight = 4, 0
	})
	shard.NewWorkspace(t, "root", "watched")
	config := shardtesting.At(shard.Admin(t), "root:watched")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	do := func(ctx context.Context, method, path, body string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, config.Host+path, bytes.NewBufferString(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		return client.Do(req)
	}
	res, err := do(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", watchedDefinition)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		t.Fatal(res.Status)
	}
	var paths []string
	shardtesting.Eventually(t, "the definition is served", func(context.Context) error {
		paths, err = watchPaths(config)
		if err == nil && !slices.Contains(paths, "/apis/seats.example.com/v1/widgets") {
			err = fmt.Errorf("resources: %v", paths)
		}
		return err
	})
	if len(paths) < 30 {
		t.Fatalf("only %d resources found", len(paths))
	}
	for _, path := range paths {
		for _, query := range []string{
			"?watch=true", "?watch=true&resourceVersion=0",
			"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		} {
			opened := make(chan error, 1)
			go func() {
				res, err := do(t.Context(), http.MethodGet, path+query, "")
				if err == nil {
					t.Cleanup(func() { _ = res.Body.Close() })
					if res.StatusCode != http.StatusOK {
						err = fmt.Errorf("%s", res.Status)
					}
				}
				opened <- err
			}()
			select {
			case err := <-opened:
				if err != nil {
					t.Errorf("%s%s: %v", path, query, err)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s%s waits for the watch before it", path, query)
			}
		}
	}
}

// watchPaths returns the paths of all resources that can be watched.
func watchPaths(config *rest.Config) ([]string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, list := range lists {
		prefix := "/apis/" + list.GroupVersion
		if list.GroupVersion == "v1" {
			prefix = "/api/v1"
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "watch") {
				paths = append(paths, prefix+"/"+resource.Name)
			}
		}
	}
	return paths, nil
}
