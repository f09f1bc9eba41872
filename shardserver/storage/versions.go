package storage

import (
	"strconv"
	"strings"
)

// A logical cluster that has moved to another shard has an epoch, the number of its moves. Each shard has an etcd of its own, so
// that a revision means something else on each. Resource versions that clients see are therefore
//
//	epoch << revisionBits | revision
//
// which says from which shard a version is, and which grows with each move. Logical clusters that have never moved have epoch 0,
// hence the bare revision.
const revisionBits = 50

// MaxEpoch is the highest epoch. Versions with it fit a signed integer of 64 bits, to which some clients convert them.
const MaxEpoch = 1<<(63-revisionBits) - 1

// minEpochDigits is the number of digits from which a version can have an epoch.
const minEpochDigits = 16

// Revision returns the revision in a resource version. Versions of several logical clusters of one shard are only comparable
// as revisions.
func Revision(resourceVersion uint64) uint64 { return resourceVersion & (1<<revisionBits - 1) }

// ParseRevision returns the revision in a resource version of an object or list.
func ParseRevision(resourceVersion string) (uint64, error) {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	return Revision(version), err
}

// bareVersion returns a resource version without its epoch, unchanged if it has none.
func bareVersion(resourceVersion string) string {
	_, bare := splitVersion(resourceVersion)
	return bare
}

// splitVersion returns the epoch of a resource version and the version without it. What is no version has epoch 0: the storage
// below refuses it.
func splitVersion(resourceVersion string) (of epoch, bare string) {
	if len(resourceVersion) < minEpochDigits {
		return 0, resourceVersion
	}
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || version>>revisionBits == 0 {
		return 0, resourceVersion
	}
	return epoch(version >> revisionBits), strconv.FormatUint(Revision(version), 10)
}

// epoch is the epoch of the content that a shard has of a logical cluster.
type epoch uint64

// origin is where a version comes from, as seen from an epoch.
type origin int

const (
	// sameEpoch is the origin of versions that the storage below understands.
	sameEpoch origin = iota
	// olderEpoch is the origin of versions from before a move.
	olderEpoch
	// newerEpoch is the origin of versions from after a move that this replica of the shard does not know of yet.
	newerEpoch
)

func (e epoch) originOf(other epoch) origin {
	switch {
	case other < e:
		return olderEpoch
	case other > e:
		return newerEpoch
	}
	return sameEpoch
}

// parse returns where a resource version comes from, and the version that the storage below understands. The two values without
// a revision mean the same in every epoch.
func (e epoch) parse(resourceVersion string) (origin, string) {
	if resourceVersion == "" || resourceVersion == "0" {
		return sameEpoch, resourceVersion
	}
	of, bare := splitVersion(resourceVersion)
	return e.originOf(of), bare
}

// add adds the epoch to a resource version that has none.
func (e epoch) add(resourceVersion string) string {
	if e == 0 || resourceVersion == "" {
		return resourceVersion
	}
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || version == 0 {
		return resourceVersion
	}
	return strconv.FormatUint(e.addTo(version), 10)
}

// addTo is add for a number.
func (e epoch) addTo(version uint64) uint64 {
	if version == 0 || version>>revisionBits != 0 {
		return version
	}
	return uint64(e)<<revisionBits | version
}

// tokenSeparator follows the epoch in a continue token. The alphabet of tokens does not contain it.
const tokenSeparator = "."

// parseToken is parse for a continue token, which contains a bare revision.
func (e epoch) parseToken(token string) (origin, string) {
	if token == "" {
		return sameEpoch, ""
	}
	prefix, bare, found := strings.Cut(token, tokenSeparator)
	if !found {
		return e.originOf(0), token
	}
	of, err := strconv.ParseUint(prefix, 10, 64)
	if err != nil || of == 0 || of > MaxEpoch {
		return sameEpoch, token // the storage below refuses it
	}
	return e.originOf(epoch(of)), bare
}

// addToToken adds the epoch to a continue token.
func (e epoch) addToToken(token string) string {
	if e == 0 || token == "" {
		return token
	}
	return strconv.FormatUint(uint64(e), 10) + tokenSeparator + token
}
