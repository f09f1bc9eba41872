package migration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// restoredWorld is one logical cluster that moves among shards, of which those that do not have it are restored to earlier states.
type restoredWorld struct {
	random *rand.Rand
	log    []string
	shards []*restoredShard
	// holder has the logical cluster, to is where it is handed over to, or nil.
	holder, to *restoredShard
}

type restoredShard struct {
	name string
	// annotations are those of the LogicalCluster; nil if there is none. history are all of before.
	annotations map[string]string
	history     []map[string]string
	// asked are the shards that have answered in this round; rounds are over with restoredRounds.
	asked  map[string]bool
	rounds int
}

func (s *restoredShard) set(annotations map[string]string) {
	s.annotations = annotations
	s.history = append(s.history, maps.Clone(annotations))
}

func (s *restoredShard) isConfirmed() bool { return s.rounds >= restoredRounds }

func (s *restoredShard) serves() bool {
	return s.isConfirmed() && s.annotations != nil && movestate.Of(s.annotations) == movestate.Open
}

func (s *restoredShard) secret() []byte { return []byte(s.name) }

func (s *restoredShard) cluster() *corev1alpha1.LogicalCluster {
	annotations := maps.Clone(s.annotations)
	annotations[logicalcluster.AnnotationKey] = "moving"
	return &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: annotations}}
}

func (s *restoredShard) stored() *storedCluster {
	annotations := map[string]any{}
	for key, value := range s.annotations {
		annotations[key] = value
	}
	return &storedCluster{object: map[string]any{"metadata": map[string]any{"uid": "u", "annotations": annotations}}}
}

func newRestoredWorld(seed uint64) *restoredWorld {
	w := &restoredWorld{random: rand.New(rand.NewPCG(seed, seed))}
	for _, name := range []string{"alpha", "beta", "gamma"} {
		w.shards = append(w.shards, &restoredShard{name: name, rounds: restoredRounds})
	}
	for _, shard := range w.shards {
		shard.set(nil)
	}
	w.holder = w.shards[0]
	w.holder.set(map[string]string{})
	return w
}

var restoredSteps = []struct {
	name string
	run  func(*restoredWorld, *restoredShard)
}{
	{"hands over", func(w *restoredWorld, to *restoredShard) {
		if w.to != nil || to == w.holder || to.annotations != nil || !w.holder.isConfirmed() {
			return
		}
		after, epoch := maps.Clone(w.holder.annotations), epochOf(w.holder.annotations)+1
		after[corev1alpha1.MovedToAnnotationKey], after[corev1alpha1.EpochAnnotationKey] = to.name, strconv.FormatInt(epoch, 10)
		signed := receipt{Shard: w.holder.name, Epoch: epoch, MAC: sign(w.holder.secret(), logicalcluster.MustParseName("moving"), "u", epoch)}
		after[corev1alpha1.ReceiptsAnnotationKey] = receiptsAtHandOver(after[corev1alpha1.ReceiptsAnnotationKey], signed)
		w.holder.set(after)
		to.set(map[string]string{corev1alpha1.ArrivingAnnotationKey: "m"})
		w.to = to
	}},
	{"opens", func(w *restoredWorld, to *restoredShard) {
		if w.to != to {
			return
		}
		after := maps.Clone(w.holder.annotations)
		delete(after, corev1alpha1.MovedToAnnotationKey)
		setOrDelete(after, corev1alpha1.ReceiptsAnnotationKey, receiptsAtArrival(after[corev1alpha1.ReceiptsAnnotationKey], to.name))
		to.set(after)
		w.holder, w.to = to, nil
	}},
	{"deletes what is left", func(w *restoredWorld, shard *restoredShard) {
		if w.to == nil && shard != w.holder && shard.isConfirmed() && shard.annotations != nil && movestate.Of(shard.annotations) == movestate.MovedAway {
			shard.set(nil)
		}
	}},
	{"is restored", func(w *restoredWorld, shard *restoredShard) {
		earlier := shard.history[w.random.IntN(len(shard.history))]
		if shard == w.holder || shard == w.to || movestate.Of(earlier) == movestate.Arriving {
			return
		}
		shard.set(maps.Clone(earlier))
		shard.asked, shard.rounds = map[string]bool{}, 0
	}},
	{"asks another", func(w *restoredWorld, shard *restoredShard) {
		other := w.shards[w.random.IntN(len(w.shards))]
		if shard.isConfirmed() || other == shard || shard.asked[other.name] {
			return
		}
		if other.annotations != nil {
			for _, one := range claimsFor([]*corev1alpha1.LogicalCluster{other.cluster()}, shard.name, other.name, "").Claims {
				if shard.annotations != nil && isOutdated(shard.name, shard.secret(), shard.stored(), one) {
					after := maps.Clone(shard.annotations)
					markOutdated(after, one, time.Now())
					shard.set(after)
				}
			}
		}
		if shard.asked[other.name] = true; len(shard.asked) == len(w.shards)-1 {
			shard.asked, shard.rounds = map[string]bool{}, shard.rounds+1
		}
	}},
}

// TestModelOfRestores moves a logical cluster among shards, and restores those that do not have it, in random order: none of them ever serves it,
// and who has it does not lose it by that.
func TestModelOfRestores(t *testing.T) {
	outdated := 0
	for seed := range uint64(500) {
		w := newRestoredWorld(seed)
		for range 400 {
			step, shard := restoredSteps[w.random.IntN(len(restoredSteps))], w.shards[w.random.IntN(len(w.shards))]
			w.log = append(w.log, fmt.Sprintf("%s %s", shard.name, step.name))
			step.run(w, shard)
			for _, shard := range w.shards {
				if shard.serves() && (shard != w.holder || w.to != nil) {
					t.Fatalf("seed %d: shard %s serves after %v", seed, shard.name, w.log)
				}
			}
			if w.to == nil && movestate.Of(w.holder.annotations) != movestate.Open {
				t.Fatalf("seed %d: nobody has it after %v", seed, w.log)
			}
		}
		if slices.ContainsFunc(w.shards, func(s *restoredShard) bool { return s.annotations[corev1alpha1.OutdatedAnnotationKey] != "" }) {
			outdated++
		}
	}
	if outdated == 0 {
		t.Error("nothing was outdated")
	}
	t.Logf("%d of the runs end with an outdated logical cluster", outdated)
}
