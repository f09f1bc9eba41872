package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/atoll-dev/atoll/internal/expression"
)

// maxContents bounds the contents and the list of related objects in one Secret, below the limit of the server. If all contents exceed it
// together, the Secret has digests of the largest ones: a digest is sufficient to detect that a content has not changed.
const maxContents = 768 << 10

// digestPrefix marks a digest. It is not valid JSON, so a reader that does not support digests treats the content as unknown.
const digestPrefix = "sha256:"

// Key returns the key of the content of an object with this identity.
func Key(identity ...string) string { return expression.SHA1Hex(strings.Join(identity, "/")) }

// Last returns the content that was written last, and false if the state does not contain it.
func (s *State) Last(key string) (map[string]any, bool) {
	var content map[string]any
	if encoded, found := s.contents[key]; !found || json.Unmarshal(encoded, &content) != nil || content == nil {
		return nil, false
	}
	return content, true
}

// IsLast reports whether a content is the one that was written last. It also works if the state contains only the digest.
func (s *State) IsLast(key string, content map[string]any) (bool, error) {
	recorded, found := s.contents[key]
	if !found {
		return false, nil
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return false, fmt.Errorf("encoding a content: %w", err)
	}
	return bytes.Equal(recorded, encoded) || bytes.Equal(recorded, digest(encoded)), nil
}

// Has reports whether the state contains a content of an object.
func (s *State) Has(key string) bool { return len(s.contents[key]) > 0 }

// SetLast records the content that has been written, and removes the unfinished patch.
func (s *State) SetLast(key string, content map[string]any) error {
	encoded, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encoding a content: %w", err)
	}
	if !bytes.Equal(s.contents[key], digest(encoded)) {
		s.contents[key] = encoded
	}
	delete(s.contents, key+unfinishedSuffix)
	return nil
}

// unfinishedSuffix is the suffix of a content's key for a patch that is about to be sent.
const unfinishedSuffix = ".patch"

// Unfinished returns the fields of patches that earlier passes may have sent without recording the content. They are nil if they are
// unknown.
func (s *State) Unfinished(key string) (patch map[string]any, exists bool) {
	encoded, exists := s.contents[key+unfinishedSuffix]
	if !exists || json.Unmarshal(encoded, &patch) != nil {
		return nil, exists
	}
	return patch, true
}

// SetUnfinished records the fields of a patch before it is sent. SetLast removes the record.
func (s *State) SetUnfinished(key string, patch map[string]any) error {
	encoded, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	s.contents[key+unfinishedSuffix] = encoded
	return nil
}

// Forget removes the content of an object.
func (s *State) Forget(key string) {
	delete(s.contents, key)
	delete(s.contents, key+unfinishedSuffix)
}

func digest(encoded []byte) []byte {
	sum := sha256.Sum256(encoded)
	return []byte(digestPrefix + hex.EncodeToString(sum[:]))
}

// fit replaces the largest contents by their digests, so that all contents fit into a Secret together with others bytes of other data. It
// also returns the total size.
func fit(contents map[string][]byte, others int) (fitting map[string][]byte, size int) {
	fitting, size = maps.Clone(contents), others
	for _, encoded := range contents {
		size += len(encoded)
	}
	for _, key := range keys(contents) {
		if size <= maxContents {
			break
		}
		d := digest(contents[key])
		if len(d) >= len(contents[key]) {
			break
		}
		fitting[key] = d
		size -= len(contents[key]) - len(d)
	}
	return fitting, size
}
