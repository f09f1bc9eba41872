// Package logicalcluster defines the names and paths of logical clusters and how contexts and objects carry them. It
// imports no other package of this module and no server code, so that every package may import it.
//
// A *Name* identifies one logical cluster, independent of its shard ("root", "2cynbfy2m0wtjqcs", "system:admin"). A
// *Path* identifies one through the workspace tree ("root:org:team"). Every name is a path of one segment.
package logicalcluster

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math/big"
	"strings"
)

// AnnotationKey is the annotation with the name of the logical cluster on every stored object. Only the storage layer
// writes it; values that clients send are overwritten.
const AnnotationKey = "kcp.io/cluster"

// MovingHeader is the header of responses with status 503 by which a shard refuses a request because the logical cluster moves: the request may
// be repeated, there or at another shard.
const MovingHeader = "X-Atoll-Logical-Cluster-Moving"

// PathAnnotationKey is the annotation with the canonical workspace path of a logical cluster.
const PathAnnotationKey = "kcp.io/path"

const (
	segment = `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`
	// pathPattern is the pattern of paths in errors, as kcp has it. isPath is the same, and cheaper: names are parsed in each request, and by the million
	// when a proxy starts.
	pathPattern = `^` + segment + `(:` + segment + `)*$`
	// maxSegmentLength is the length of the longest segment.
	maxSegmentLength = 63
	// systemPrefix is the prefix of names that contain a colon and are one segment.
	systemPrefix = "system:"
	// maxPathLength bounds the length of parsed input. Keys of etcd and URLs are shorter.
	maxPathLength = 4096
)

// Name is the name of one logical cluster. The zero Name is no logical cluster: storage refuses it.
type Name struct{ s string }

// Well-known names. They exist without a Workspace.
var (
	// Root is the root of the workspace tree, on the root shard.
	Root = Name{"root"}
	// Admin contains the RBAC that applies to all logical clusters of a shard, and its leader election lease.
	Admin = Name{"system:admin"}
	// Shard contains the shard's own objects, which it needs without the root shard.
	Shard = Name{"system:shard"}
	// SystemCRDs is where the definitions of kcp's own APIs are visible.
	SystemCRDs = Name{"system:system-crds"}
	// BoundCRDs is where the definitions behind bound APIs are visible.
	BoundCRDs = Name{"system:bound-crds"}
)

// Wildcard stands for all logical clusters of a shard. It is valid for LIST and WATCH only; storage refuses it in other
// requests.
var Wildcard = Name{"*"}

// ParseName accepts one segment of lower-case letters, digits and '-' (at most 63 characters, with no '-' at either
// end), or a name that starts with "system:". It accepts neither a path nor the wildcard.
func ParseName(s string) (Name, error) {
	if len(s) > maxPathLength {
		return Name{}, fmt.Errorf("invalid cluster name: %d characters, at most %d are allowed", len(s), maxPathLength)
	}
	if isSegment(s) || (strings.HasPrefix(s, systemPrefix) && isPath(s)) {
		return Name{s}, nil
	}
	return Name{}, fmt.Errorf("invalid cluster name %q: want lower-case letters, digits and '-' (at most 63 characters), or a name starting with %q", s, systemPrefix)
}

// isSegment reports whether s is one segment of a path.
func isSegment(s string) bool {
	if s == "" || len(s) > maxSegmentLength || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// isPath reports whether s consists of segments with colons between them.
func isPath(s string) bool {
	for part := range strings.SplitSeq(s, ":") {
		if !isSegment(part) {
			return false
		}
	}
	return true
}

// MustParseName is ParseName for literals. It panics if ParseName returns an error.
func MustParseName(s string) Name {
	n, err := ParseName(s)
	if err != nil {
		panic(err)
	}
	return n
}

// String returns the name in the form of URLs, keys and annotations, or "" for the zero Name.
func (n Name) String() string { return n.s }

// Empty reports whether n is the zero Name.
func (n Name) Empty() bool { return n.s == "" }

// IsWildcard reports whether n stands for all logical clusters.
func (n Name) IsWildcard() bool { return n == Wildcard }

// IsSystem reports whether n is one of the shard's own logical clusters ("system:..."), which tenants cannot access.
func (n Name) IsSystem() bool { return strings.HasPrefix(n.s, systemPrefix) }

// Path returns the path with this name as its only segment.
func (n Name) Path() Path { return Path{n.s} }

// RandomName returns a new name for a workspace's logical cluster: the first 16 characters of the padded base36 SHA-224
// of 32 random bytes.
func RandomName() Name {
	var raw [32]byte
	if _, err := rand.Read(raw[:]); err != nil {
		panic(fmt.Sprintf("reading random bytes: %v", err)) // crypto/rand never fails on supported systems
	}
	return Name{Base36Sha224(raw[:])[:16]}
}

// HomeName returns the name of the home cluster of a user: the padded base36 of the first 8 bytes of the SHA-224
// of the user name.
func HomeName(user string) Name {
	sum := sha256.Sum224([]byte(user))
	return Name{paddedBase36(sum[:8])}
}

// Base36Sha224 returns the SHA-224 of data, as one big-endian number in base 36, with a leading '0' for each leading
// zero byte of the digest.
func Base36Sha224(data []byte) string {
	sum := sha256.Sum224(data)
	return paddedBase36(sum[:])
}

func paddedBase36(digest []byte) string {
	zeros := 0
	for zeros < len(digest) && digest[zeros] == 0 {
		zeros++
	}
	text := new(big.Int).SetBytes(digest).Text(36)
	if zeros == len(digest) {
		text = ""
	}
	return strings.Repeat("0", zeros) + text
}
