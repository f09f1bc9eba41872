package crdregistry

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// bindingStore has the binding of one resource.
type bindingStore struct {
	storage.Store
	resource bindings.Resource
}

func (s bindingStore) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	resource := apisv1alpha2.BoundAPIResource{
		Group: s.resource.Group, Resource: s.resource.GroupResource.Resource, StorageVersions: []string{"v1"},
		Schema: apisv1alpha2.BoundAPIResourceSchema{UID: string(s.resource.SchemaUID), IdentityHash: s.resource.Identity},
	}
	binding := apisv1alpha2.APIBinding{Status: apisv1alpha2.APIBindingStatus{BoundResources: []apisv1alpha2.BoundAPIResource{resource}}}
	binding.Name, binding.ResourceVersion = "binding", "1"
	binding.Annotations = map[string]string{logicalcluster.AnnotationKey: logicalcluster.Root.String()}
	return &apisv1alpha2.APIBindingList{Items: []apisv1alpha2.APIBinding{binding}}, nil
}

// Storages are opened without the lock that all changes of definitions and bindings need, because that waits for a connection to etcd.
func TestStoragesAreOpenedWithoutTheLock(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	etcd := grpc.NewServer() // it has no service: nothing is stored
	served := make(chan error, 1)
	go func() { served <- etcd.Serve(listener) }()
	t.Cleanup(func() {
		etcd.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	config := storagebackend.NewDefaultConfig("/registry", crdstorage.Codec)
	config.Transport.ServerList = []string{"http://" + listener.Addr().String()}
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	bound := bindings.Resource{GroupResource: widgets, Identity: "identity", SchemaUID: "uid"}
	ofWildcard := bindings.Resource{GroupResource: widgets, Identity: "identity", SchemaUID: "uid-of-wildcard"}
	updateBoundDefinition := func(r *Registry, uid types.UID) error {
		key := definitionKey{logicalcluster.BoundCRDs, string(uid)}
		return r.update(parsedDefinition{definitionKey: key, version: 1, resource: widgets, served: true}, false)
	}
	for name, change := range map[string]func(*Registry) error{
		"a definition": func(r *Registry) error {
			return r.update(parsedDefinition{definitionKey: definitionKey{logicalcluster.Root, widgets.String()}, version: 1, resource: widgets}, false)
		},
		"the definition of what is bound": func(r *Registry) error { return updateBoundDefinition(r, bound.SchemaUID) },
		"the definition of what a request of the wildcard uses": func(r *Registry) error {
			r.mu.Lock()
			r.wildcard.retain(ofWildcard, func() struct{} { return struct{}{} })
			r.mu.Unlock()
			return updateBoundDefinition(r, ofWildcard.SchemaUID)
		},
		"a request of the wildcard": func(r *Registry) error {
			_, err := r.retainWildcard(bound)
			return err
		},
		"a binding": func(r *Registry) error {
			r.syncBinding(bindings.Change{Cluster: logicalcluster.Root, Resources: []*bindings.Resource{&bound}})
			return errClosed // it returns none
		},
	} {
		t.Run(name, func(t *testing.T) {
			resources := storage.NewRegistry(kcpcore.Locality)
			pool := crdstorage.NewPool(crdstorage.Options{Storage: *config})
			resources.Add(&storage.Resource{GVR: apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"), Store: bindingStore{resource: bound}})
			index := bindings.NewIndex(resources)
			if err := index.Refresh(logicalcluster.With(t.Context(), logicalcluster.Root)); err != nil {
				t.Fatal(err)
			}
			r := New(Config{Resources: resources, Specs: apiextensions.NewSpecInterner(), Bindings: index, Pool: pool})
			r.boundDefinitions[bound.SchemaUID] = &boundDefinition{parsedDefinition: parsedDefinition{resource: widgets, served: true}}
			ended := make(chan error, 1)
			r.updateMu.Lock()
			go func() { ended <- change(r) }()
			err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return pool.Len() == 1, nil })
			r.closed = true // nothing happens with the lock
			r.updateMu.Unlock()
			if err != nil {
				t.Error("the storage is not opened while another change has the lock")
			}
			if err := <-ended; !errors.Is(err, errClosed) {
				t.Errorf("it ended with %v", err)
			}
			if pool.Len() > 0 {
				t.Errorf("%d storages are left", pool.Len())
			}
		})
	}
}
