package storage

import (
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const firstEpoch = 1 << revisionBits

func TestParseVersions(t *testing.T) {
	version := func(epoch, revision uint64) string { return strconv.FormatUint(epoch<<revisionBits|revision, 10) }
	for _, tc := range []struct {
		epoch   epoch
		version string
		origin  origin
		bare    string
	}{
		{0, "", sameEpoch, ""},
		{0, "0", sameEpoch, "0"},
		{0, "7", sameEpoch, "7"},
		{0, "x", sameEpoch, "x"},
		{0, version(0, firstEpoch-1), sameEpoch, version(0, firstEpoch-1)},
		{0, version(1, 0), newerEpoch, "0"},
		{0, version(1, 7), newerEpoch, "7"},
		{0, "99999999999999999999", sameEpoch, "99999999999999999999"}, // no number of 64 bits
		{1, "", sameEpoch, ""},
		{1, "0", sameEpoch, "0"},
		{1, "7", olderEpoch, "7"},
		{1, version(0, firstEpoch-1), olderEpoch, version(0, firstEpoch-1)},
		{1, version(1, 7), sameEpoch, "7"},
		{1, version(1, firstEpoch-1), sameEpoch, version(0, firstEpoch-1)},
		{1, version(2, 7), newerEpoch, "7"},
		{2, version(1, 7), olderEpoch, "7"},
		{2, version(2, 7), sameEpoch, "7"},
		{MaxEpoch, version(MaxEpoch, 7), sameEpoch, "7"},
		{MaxEpoch, version(MaxEpoch-1, 7), olderEpoch, "7"},
	} {
		if origin, bare := tc.epoch.parse(tc.version); origin != tc.origin || bare != tc.bare {
			t.Errorf("epoch %d, version %q: got %d, %q, want %d, %q", tc.epoch, tc.version, origin, bare, tc.origin, tc.bare)
		}
	}
}

func TestAddEpoch(t *testing.T) {
	for _, tc := range []struct {
		epoch         epoch
		version, want string
	}{
		{0, "", ""}, {0, "0", "0"}, {0, "7", "7"},
		{1, "", ""}, {1, "0", "0"}, {1, "7", "1125899906842631"}, {1, "x", "x"},
		{1, "1125899906842631", "1125899906842631"}, // it has one
		{3, "7", "3377699720527879"},
		{MaxEpoch, "7", "9222246136947933191"}, // a signed integer holds it
	} {
		got := tc.epoch.add(tc.version)
		if got != tc.want {
			t.Errorf("epoch %d, version %q: got %q, want %q", tc.epoch, tc.version, got, tc.want)
		}
		if origin, bare := tc.epoch.parse(got); tc.version == "7" && (origin != sameEpoch || bare != "7") {
			t.Errorf("epoch %d, version %q: read as %d, %q", tc.epoch, got, origin, bare)
		}
	}
	if revision, err := ParseRevision("3377699720527879"); revision != 7 || err != nil {
		t.Errorf("revision %d, %v", revision, err)
	}
}

func TestTokens(t *testing.T) {
	for _, tc := range []struct {
		epoch  epoch
		token  string
		origin origin
		bare   string
	}{
		{0, "", sameEpoch, ""}, {1, "", sameEpoch, ""},
		{0, "abc", sameEpoch, "abc"}, {0, "1.abc", newerEpoch, "abc"},
		{1, "abc", olderEpoch, "abc"}, {1, "1.abc", sameEpoch, "abc"}, {1, "2.abc", newerEpoch, "abc"},
		{2, "abc", olderEpoch, "abc"}, {2, "1.abc", olderEpoch, "abc"},
		{1, "0.abc", sameEpoch, "0.abc"}, {1, "x.abc", sameEpoch, "x.abc"}, {1, ".", sameEpoch, "."}, // invalid
	} {
		if origin, bare := tc.epoch.parseToken(tc.token); origin != tc.origin || bare != tc.bare {
			t.Errorf("epoch %d, token %q: got %d, %q, want %d, %q", tc.epoch, tc.token, origin, bare, tc.origin, tc.bare)
		}
	}
	for token, want := range map[string]string{"": "", "abc": "2.abc"} {
		if got := epoch(2).addToToken(token); got != want || epoch(0).addToToken(token) != token {
			t.Errorf("token %q: got %q, want %q", token, got, want)
		}
	}
}

// TestVersionsWithoutEpoch guards the path of logical clusters that have never moved.
func TestVersionsWithoutEpoch(t *testing.T) {
	allocations := testing.AllocsPerRun(100, func() {
		_, version := epoch(0).parse("123456789")
		_, token := epoch(0).parseToken("eyJ2IjoibWV0YS5rOHMuaW8vdjEi")
		if bareVersion(version) != "123456789" || token == "" {
			t.Error("changed")
		}
	})
	if allocations != 0 {
		t.Errorf("%f allocations", allocations)
	}
}

// behindGuard is a guard that has not seen a move yet.
type behindGuard struct{ Guard }

func (behindGuard) HasEpochs() bool                  { return false }
func (behindGuard) Epoch(logicalcluster.Name) uint64 { return 0 }
func (behindGuard) EpochIn(annotations map[string]string) uint64 {
	return uint64(len(annotations["epoch"]))
}

// TestEpochOfExemptObjects: an object that is shown before the guard has seen the move has the version of its epoch nevertheless.
func TestEpochOfExemptObjects(t *testing.T) {
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: "moved", "epoch": "x"}}}
	for exempt, want := range map[bool]epoch{true: 1, false: 0} {
		if got := epochOf(behindGuard{}, exempt, obj); got != want || hasEpochs(behindGuard{}, exempt) != exempt {
			t.Errorf("exempt %t: epoch %d", exempt, got)
		}
		w := &guardedWatch{storage: &guardedStorage{guard: behindGuard{}, exempt: exempt}}
		event := w.version(watch.Event{Type: watch.Modified, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: obj.Annotations}}})
		if got := event.Object.(metav1.Object).GetResourceVersion(); got != want.add("7") {
			t.Errorf("exempt %t: version %s", exempt, got)
		}
	}
}
