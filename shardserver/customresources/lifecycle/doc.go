// Package lifecycle keeps the status of CustomResourceDefinitions and ends their life, in all logical clusters: one pair
// of controllers per shard. What a status should say is decided by pure functions (names.go, conditions.go) out of the
// definitions of one group in one logical cluster; names of another cluster never matter.
//
// Serving what definitions define is the matter of package customresources above this one.
package lifecycle

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var definitions = ownapiextensions.Definitions

// Config is what the controllers need.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API.
	Clients *loopback.Clients
	// Catalog gives the objects that a definition defines.
	Catalog *customresources.Catalog
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	reader := storage.NewReader[*apiextensions.CustomResourceDefinition](cfg.Registry, definitions)
	return []controller.Controller{newStatusController(cfg, reader), newCleanupController(cfg, reader)}
}
