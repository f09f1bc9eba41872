// Package embedded has what a shard server and its embedded cache server share. It imports neither of them, so that they need not
// import each other.
package embedded

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
)

// Server is a cache server without a listener and a handler chain of its own.
type Server interface {
	// ServeHTTP answers requests for full paths, "/services/cache/...", of the user in their context.
	http.Handler
	// Split divides the part of a path after "/services/cache" into the scope (whose objects are requested) and the
	// Kubernetes path. The scope of an invalid path is empty.
	Split(path string) (scope, rest string)
	// Authorize decides about a request to the Kubernetes path in a scope.
	Authorize(ctx context.Context, scope string, attributes authorizer.Attributes) (authorizer.Decision, string, error)
	// Run works in the background until the context ends.
	Run(ctx context.Context)
	// Close releases storage. It is called after everything else has ended.
	Close()
}

// Config is what a shard passes to its embedded cache server.
type Config struct {
	Transport   storagebackend.TransportConfig
	Prefix      string
	Transformer func(schema.GroupResource) value.Transformer
	MinWatch    time.Duration
	MaxBody     int64
	AlwaysAllow []string
	// MaxObjects is the number of objects that one shard may have in the cache; 0 means no limit.
	MaxObjects int64
}

// NewServerFunc creates the embedded cache server of a shard.
type NewServerFunc func(ctx context.Context, config Config) (Server, error)
