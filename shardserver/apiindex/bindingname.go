package apiindex

import (
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxExportPart is the longest part of the export's name in the name of a default binding, which ends in "-" and a
	// hash of hashLength characters.
	maxExportPart = 247
	hashLength    = 5
)

// DefaultBindingName returns the name of the APIBinding that a logical cluster gets because of its workspace type.
// exportPath is the path in the workspace type, so that the name is the same in every reconciliation.
func DefaultBindingName(consumer logicalcluster.Name, exportPath logicalcluster.Path, exportName string) string {
	hash := base62Sha224(consumer.String() + "|" + exportPath.String() + "|" + exportName)
	return exportName[:min(len(exportName), maxExportPart)] + "-" + strings.ToLower(hash[:hashLength])
}
