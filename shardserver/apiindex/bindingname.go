package apiindex

import (
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxExportPart leaves room in the name of a default binding for the hash and the dash before it.
	maxExportPart = 247
	bindingHash   = 5
)

// DefaultBindingName returns the name of the APIBinding by which a logical cluster binds an export because of its
// type. The path is the one that the type names, so that a second look finds what the first one made.
func DefaultBindingName(consumer logicalcluster.Name, exportPath logicalcluster.Path, exportName string) string {
	hash := base62Sha224(consumer.String() + "|" + exportPath.String() + "|" + exportName)
	return exportName[:min(len(exportName), maxExportPart)] + "-" + strings.ToLower(hash[:bindingHash])
}
