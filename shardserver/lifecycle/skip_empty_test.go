package lifecycle

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

func TestSkipEmptyClient(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{},"items":[]}`))
	}))
	defer server.Close()
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	empty, other := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	withEmpty := context.WithValue(t.Context(), emptyResourcesKey{}, map[schema.GroupVersionResource]bool{empty: true, other: false})
	for name, tc := range map[string]struct {
		ctx      context.Context
		resource schema.GroupVersionResource
		requests int64
	}{
		"an empty resource":                               {withEmpty, empty, 0},
		"a resource with objects":                         {withEmpty, other, 2},
		"without information all resources are requested": {t.Context(), empty, 2},
	} {
		t.Run(name, func(t *testing.T) {
			requests.Store(0)
			in := skipEmptyClient{client}.Resource(tc.resource).Namespace("n")
			if err := in.DeleteCollection(tc.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			if list, err := in.List(tc.ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
				t.Fatal(list, err)
			}
			if got := requests.Load(); got != tc.requests {
				t.Errorf("%d requests, want %d", got, tc.requests)
			}
		})
	}
}
