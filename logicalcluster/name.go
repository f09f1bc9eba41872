// Package logicalcluster owns the names and paths of logical clusters and the way they travel in a context
// and in an object (wall W4). It imports nothing of ours and no server code, so that every part may import it.
//
// A *Name* addresses one logical cluster on whatever shard holds it ("root", "2cynbfy2m0wtjqcs", "system:admin").
// A *Path* addresses one through the tree of workspaces ("root:org:team"). Every name is a path of one segment.
package logicalcluster

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// AnnotationKey is the annotation that every stored object carries: the name of its logical cluster. Only the
// storage layer writes it; what a client sends is overwritten.
const AnnotationKey = "kcp.io/cluster"

// PathAnnotationKey is the annotation that holds the canonical workspace path of a logical cluster.
const PathAnnotationKey = "kcp.io/path"

const (
	segment = `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`
	// systemPrefix starts the names that contain a colon and still are one name.
	systemPrefix = "system:"
	// maxPathLength bounds what is parsed at all. etcd keys and URLs end long before this.
	maxPathLength = 4096
)

var (
	segmentPattern = regexp.MustCompile(`^` + segment + `$`)
	pathPattern    = regexp.MustCompile(`^` + segment + `(:` + segment + `)*$`)
)

// Name is the name of one logical cluster. The zero Name is no cluster: storage refuses it.
type Name struct{ s string }

// Well-known names. They exist without a Workspace that leads to them.
var (
	// Root is the root of the workspace tree, held by the root shard.
	Root = Name{"root"}
	// Admin holds the RBAC that applies to all logical clusters of a shard, and its leader election lease.
	Admin = Name{"system:admin"}
	// Shard is the shard's own corner: what it must remember without the root shard.
	Shard = Name{"system:shard"}
	// SystemCRDs is where the definitions of kcp's own APIs are visible.
	SystemCRDs = Name{"system:system-crds"}
	// BoundCRDs is where the definitions behind bound APIs are visible.
	BoundCRDs = Name{"system:bound-crds"}
)

// Wildcard stands for all logical clusters of a shard. It is valid for LIST and WATCH alone and is refused by
// storage for everything else.
var Wildcard = Name{"*"}

// ParseName accepts one segment of lower-case letters, digits and '-' (at most 63, neither end a '-'), or a name
// that starts with "system:". It accepts neither a path nor the wildcard.
func ParseName(s string) (Name, error) {
	if len(s) > maxPathLength {
		return Name{}, fmt.Errorf("invalid cluster name: %d characters, at most %d are allowed", len(s), maxPathLength)
	}
	if segmentPattern.MatchString(s) || (strings.HasPrefix(s, systemPrefix) && pathPattern.MatchString(s)) {
		return Name{s}, nil
	}
	return Name{}, fmt.Errorf("invalid cluster name %q: want lower-case letters, digits and '-' (at most 63 characters), or a name starting with %q", s, systemPrefix)
}

// MustParseName is ParseName for literals. It panics on what ParseName refuses.
func MustParseName(s string) Name {
	n, err := ParseName(s)
	if err != nil {
		panic(err)
	}
	return n
}

// String returns the name as it stands in URLs, keys and annotations, or "" for the zero Name.
func (n Name) String() string { return n.s }

// Empty tells whether n is the zero Name, that is no cluster at all.
func (n Name) Empty() bool { return n.s == "" }

// IsWildcard tells whether n stands for all logical clusters.
func (n Name) IsWildcard() bool { return n == Wildcard }

// IsSystem tells whether n is one of the shard's own clusters ("system:..."), which no tenant may enter.
func (n Name) IsSystem() bool { return strings.HasPrefix(n.s, systemPrefix) }

// Path returns the path that consists of this name alone.
func (n Name) Path() Path { return Path{n.s} }

// RandomName returns a fresh name for a workspace's logical cluster: the first 16 characters of the padded
// base36 SHA-224 of 32 random bytes.
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

// Base36Sha224 returns the SHA-224 of data, read as one big-endian number and printed in base 36, with one '0'
// in front for each leading zero byte of the digest.
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
