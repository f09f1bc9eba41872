package storage

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// withTransactions returns the stock storage of a resource with transactions for creations of Together. The factory of the stock storage
// has no option for the etcd client, through which the storage writes; hence these creations have a second stock storage with another
// client.
func withTransactions(etcd *clientv3.Client, raw storage.Interface, config *storagebackend.ConfigForResource,
	newFunc, newListFunc func() runtime.Object, resourcePrefix string) (storage.Interface, error) {
	client := &kubernetes.Client{Client: etcd}
	client.Kubernetes = &transactionClient{Interface: client, etcd: etcd, resource: config.GroupResource}
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	versioner := storage.APIObjectVersioner{}
	together, err := etcd3.New(client, nil, config.Codec, newFunc, newListFunc, config.Prefix, resourcePrefix, config.GroupResource, transformer,
		config.LeaseManagerConfig, etcd3.NewDefaultDecoder(config.Codec, versioner), versioner)
	if err != nil {
		return nil, fmt.Errorf("creating the storage for transactions of %s: %w", config.GroupResource, err)
	}
	return &togetherStorage{raw, together}, nil
}

// togetherStorage stores creations of Together with another storage.
type togetherStorage struct {
	storage.Interface
	together storage.Interface
}

// Create implements storage.Interface.
func (s *togetherStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if memberOf(ctx) == nil {
		return s.Interface.Create(ctx, key, obj, out, ttl)
	}
	return s.together.Create(ctx, key, obj, out, ttl)
}
