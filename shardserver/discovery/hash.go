package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
)

// Hash identifies content.
type Hash [sha256.Size]byte

// hashes remembers the hash of definitions by what names one state of one object, so that an object is hashed once per
// change, not once per request. It keeps no object alive, and of 32768 definitions 32 bytes and two short names each.
type hashes struct{ known *documents.Cache[state, Hash] }

type state struct {
	uid             types.UID
	resourceVersion string
}

func newHashes() *hashes {
	const most = 32768
	return &hashes{known: documents.New[state, Hash](documents.Limits{Count: most, Bytes: most, Builds: 4})}
}

func (h *hashes) of(ctx context.Context, object *apiextensions.CustomResourceDefinition) (Hash, error) {
	return h.known.Get(ctx, state{object.UID, object.ResourceVersion}, func() (Hash, int64, error) {
		hash, err := hashOf(object)
		return hash, 1, err
	})
}

// hashOf hashes what documents about a definition's resource are made of: its spec, except how objects are converted,
// and the names that were accepted.
func hashOf(object *apiextensions.CustomResourceDefinition) (Hash, error) {
	spec := object.Spec
	spec.Conversion = nil
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode([]any{spec, object.Status.AcceptedNames}); err != nil {
		return Hash{}, err
	}
	return Hash(sum.Sum(nil)), nil
}

func writeContents(w io.Writer, definitions []Definition) {
	for _, definition := range definitions {
		fmt.Fprintf(w, "%x\n", definition.Content)
	}
}

func writeHidden(w io.Writer, hidden []schema.GroupResource) {
	for _, resource := range hidden {
		fmt.Fprintf(w, "-%s\n", resource)
	}
}
