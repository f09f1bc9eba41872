// Package customresourcedefinitions has the controllers of CustomResourceDefinitions, one pair per shard for all
// logical clusters: one writes their status, the other one deletes the objects of a definition that is being deleted.
// Pure functions compute the status (names.go, conditions.go) from the definitions and bound resources of one group in one
// logical cluster.
//
// Custom resources are served by the packages below shardserver/customresources.
package customresourcedefinitions

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var definitions = ownapiextensions.Definitions

// Config has what the controllers depend on.
type Config struct {
	Registry *storage.Registry
	// Clients are clients of the shard's own API.
	Clients *loopback.Clients
	// Definitions returns the objects of definitions.
	Definitions *crdregistry.Registry
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	reader := storage.NewReader[*apiextensions.CustomResourceDefinition](cfg.Registry, definitions)
	return []controller.Controller{newStatusController(cfg, reader), newFinalizingController(cfg, reader)}
}
