package shardserver

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

const (
	// hookCache is the name of the post-start hook that begins what an embedded cache does in the background.
	hookCache = "kcp-start-embedded-cache"
	// cachePrefix is where the embedded cache keeps its objects in the shard's etcd, beside the shard's own prefix if that
	// is the stock one.
	cachePrefix = "/cache"
)

// prefixOfCache returns what the keys of an embedded cache begin with. Installations that share an etcd by prefixes of their
// own have caches of their own.
func prefixOfCache(shard string) string {
	if path.Join("/", shard) == kubeoptions.DefaultEtcdPathPrefix {
		return cachePrefix
	}
	return path.Join("/", shard) + strings.ReplaceAll(cachePrefix, "/", "-")
}

// Cache is a cache server that a shard serves on its own port, below its own chain.
type Cache interface {
	// ServeHTTP answers requests for whole paths, "/services/cache/...", of the user in their context.
	http.Handler
	// Split divides what follows "/services/cache" in a path into the part that says whose objects are meant and the
	// Kubernetes path behind it. Where the path makes no sense, the first is empty.
	Split(path string) (scope, rest string)
	// Authorize decides about a request to the Kubernetes path behind a scope.
	Authorize(ctx context.Context, scope string, attributes authorizer.Attributes) (authorizer.Decision, string, error)
	// Run works in the background until the context ends.
	Run(ctx context.Context)
	// Close lets go of storage, after everything else.
	Close()
}

// CacheConfig is what an embedded cache gets of its shard.
type CacheConfig struct {
	Transport   storagebackend.TransportConfig
	Prefix      string
	Transformer func(schema.GroupResource) value.Transformer
	MinWatch    time.Duration
	MaxBody     int64
	AlwaysAllow []string
	// MaxObjects is how many objects one shard may have in the cache; 0 is any number.
	MaxObjects int64
}

// NewCache makes the cache server of a shard that was not given one. The shard server does not know how: binaries put
// the two together.
type NewCache func(ctx context.Context, config CacheConfig) (Cache, error)

// addCache serves a cache server at /services/cache, if this shard is the one to do it.
func (s *Server) addCache(ctx context.Context, create NewCache) error {
	if create == nil || s.options.Shard.CacheKubeconfig != "" {
		return nil
	}
	generic := s.config.Generic
	config := CacheConfig{
		Transport:   s.StorageTransport(),
		Prefix:      prefixOfCache(s.options.Etcd.StorageConfig.Prefix),
		MinWatch:    time.Duration(generic.MinRequestTimeout) * time.Second,
		MaxBody:     generic.MaxRequestBodyBytes,
		AlwaysAllow: s.options.Authorization.AlwaysAllowPaths,
		MaxObjects:  s.options.Shard.MaxObjectsOfAnother,
	}
	if generic.ResourceTransformers != nil {
		config.Transformer = generic.ResourceTransformers.TransformerForResource
	}
	var err error
	if s.cache, err = create(ctx, config); err != nil {
		return fmt.Errorf("creating the embedded cache server: %w", err)
	}
	generic.AddPostStartHookOrDie(hookCache, func(hook genericapiserver.PostStartHookContext) error {
		s.running.Go(func() { s.cache.Run(hook) })
		return nil
	})
	return s.config.virtual.Add(cacheView(s.cache))
}

// cacheView has the one chain of the shard serve the cache: authentication, audit and limits see the Kubernetes path.
func cacheView(cache Cache) *virtual.Workspace {
	name := strings.TrimPrefix(cacheclient.Prefix, virtual.Prefix)
	return &virtual.Workspace{
		Name:       name,
		Identities: true,
		Resolve: func(path string) (virtual.Request, bool) {
			scope, rest := cache.Split("/" + path)
			// A path that makes no sense goes on whole; the cache says what is wrong with it.
			return virtual.Request{Owner: slices.DeleteFunc(strings.Split(scope, "/"), func(s string) bool { return s == "" }), Path: rest}, true
		},
		Authorizer: cacheAuthorizer{cache},
		Handler: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				whole := req.Clone(req.Context())
				whole.URL.Path, whole.URL.RawPath = cacheclient.Prefix+cacheScope(req.Context())+req.URL.Path, ""
				cache.ServeHTTP(w, whole)
			})
		},
	}
}

// cacheScope returns the part of the path that the chain does not see, as Cache.Split gave it.
func cacheScope(ctx context.Context) string {
	request, _ := virtual.From(ctx)
	if len(request.Owner) == 0 {
		return ""
	}
	return "/" + strings.Join(request.Owner, "/")
}

type cacheAuthorizer struct{ cache Cache }

// Authorize implements authorizer.Authorizer.
func (a cacheAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.cache.Authorize(ctx, cacheScope(ctx), attributes)
}
