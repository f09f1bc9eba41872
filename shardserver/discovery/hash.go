package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"

	shared "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
)

// Hash identifies content.
type Hash [sha256.Size]byte

// hasher computes the hashes of definitions. Package apiextensions caches the hash of a whole specification; the hash without
// the parts that do not affect documents is computed once per specification, in a bounded cache.
type hasher struct {
	specHash func(*apiextensions.CustomResourceDefinition) (shared.Hash, error)
	cache    *documents.Cache[shared.Hash, Hash]
}

func newHasher(specHash func(*apiextensions.CustomResourceDefinition) (shared.Hash, error)) *hasher {
	const maxEntries = 8192
	return &hasher{specHash: specHash, cache: documents.New[shared.Hash, Hash](documents.Limits{Count: maxEntries, Bytes: maxEntries, Builds: 4})}
}

// hash returns the hash of what the documents of a definition depend on: its accepted names and its specification without the
// conversion, whose CA bundle may differ among otherwise equal definitions.
func (h *hasher) hash(ctx context.Context, object *apiextensions.CustomResourceDefinition) (Hash, error) {
	whole, err := h.specHash(object)
	if err != nil {
		return Hash{}, err
	}
	part, err := h.cache.Get(ctx, whole, func() (Hash, int64, error) {
		spec := object.Spec
		spec.Conversion = nil
		hash, err := hashOf(spec)
		return hash, 1, err
	})
	if err != nil {
		return Hash{}, err
	}
	return hashOf([]any{part, object.Status.AcceptedNames})
}

func hashOf(content any) (Hash, error) {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(content); err != nil {
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
