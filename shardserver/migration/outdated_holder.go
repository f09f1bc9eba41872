package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// holderTimeout bounds the question to one shard, holdersTimeout those to all: a request lasts a minute.
	holderTimeout  = 15 * time.Second
	holdersTimeout = 40 * time.Second
	// parallelQuestions is how many shards are asked at once.
	parallelQuestions = 8
)

// answer is what another shard says about a logical cluster that this one has handed over.
type answer struct {
	shard string
	// err is why the shard has not answered.
	err error
	// confirmed is false while what the shard has may be outdated itself.
	confirmed bool
	// claim is the one that the shard proves by a receipt of this one; nil without one.
	claim *claim
}

// holds reports whether the shard has the logical cluster.
func (a answer) holds() bool { return a.claim != nil && a.claim.Holder == a.shard && a.confirmed }

// settles reports whether the answer of the shard to which the logical cluster has moved makes the others needless.
func (a answer) settles() bool { return a.holds() || a.err != nil }

// findHolder returns the claim of the shard that has the logical cluster; nil if all others say that they do not, twice in a row: what moved between two of them
// during the first round has arrived by the second.
func (o *outdatedService) findHolder(ctx context.Context, name logicalcluster.Name, stored *storedCluster) (*claim, error) {
	ctx, cancel := context.WithTimeout(ctx, holdersTimeout)
	defer cancel()
	recorded := stored.annotations()[corev1alpha1.MovedToAnnotationKey]
	for range restoredRounds {
		others, err := o.others(ctx)
		if err != nil {
			return nil, apierrors.NewServiceUnavailable(err.Error())
		}
		holder, err := decideHolder(recorded, o.askOthers(ctx, others, recorded, name, stored))
		if err != nil {
			return nil, apierrors.NewServiceUnavailable("whether another shard has the logical cluster is unknown: " + strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		if holder != nil {
			return holder, nil
		}
	}
	return nil, nil
}

// decideHolder returns the claim of the shard that has a logical cluster; nil if none has it; or an error if that is unknown. The shard to which the logical
// cluster had moved is believed before others: one that has got it earlier, and was restored since, claims it, too, until it learns better. So another one is
// believed only if nobody may contradict it.
func decideHolder(recorded string, answers []answer) (*claim, error) {
	var holders []*claim
	var unknown, moving []error
	for _, one := range answers {
		switch {
		case one.err != nil:
			unknown = append(unknown, fmt.Errorf("asking shard %q: %w", one.shard, one.err))
		case one.claim == nil:
		case !one.confirmed:
			unknown = append(unknown, fmt.Errorf("shard %q claims it, and was restored, and does not know yet what has moved since: repeat the request when it does (condition MovesKnown)", one.shard))
		case !one.holds():
			moving = append(moving, fmt.Errorf("shard %q has handed it over to shard %q, which does not have it yet: repeat the request", one.shard, one.claim.Holder))
		case one.shard == recorded:
			return one.claim, nil
		default:
			holders = append(holders, one.claim)
		}
	}
	switch {
	case len(unknown) > 0:
		return nil, errors.Join(unknown...)
	case len(holders) > 1:
		return nil, fmt.Errorf("the shards %q and %q both have it: repeat the request when one of them has learned that it has handed it over", holders[0].Holder, holders[1].Holder)
	case len(holders) == 1:
		return holders[0], nil
	}
	return nil, errors.Join(moving...)
}

// askOthers asks the shard to which the logical cluster had moved, and the others if that does not have it.
func (o *outdatedService) askOthers(ctx context.Context, others []string, recorded string, name logicalcluster.Name, stored *storedCluster) []answer {
	at := slices.Index(others, recorded)
	if at < 0 {
		return o.askAbout(ctx, others, name, stored)
	}
	answers := o.askAbout(ctx, others[at:at+1], name, stored)
	if answers[0].settles() {
		return answers
	}
	return append(answers, o.askAbout(ctx, slices.Concat(others[:at], others[at+1:]), name, stored)...)
}

// askAbout asks shards about a logical cluster that this one has handed over.
func (o *outdatedService) askAbout(ctx context.Context, shards []string, name logicalcluster.Name, stored *storedCluster) []answer {
	answers := make([]answer, len(shards))
	var questions errgroup.Group
	questions.SetLimit(parallelQuestions)
	for i, shard := range shards {
		questions.Go(func() error {
			answers[i] = o.askOne(ctx, shard, name, stored)
			return nil
		})
	}
	_ = questions.Wait() // each answer has its error
	return answers
}

func (o *outdatedService) askOne(ctx context.Context, shard string, name logicalcluster.Name, stored *storedCluster) answer {
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	peer, err := o.cfg.Origins.connect(ctx, shard)
	if err != nil {
		return answer{shard: shard, err: err}
	}
	defer peer.close()
	found, confirmed, err := claimOn(ctx, peer, name)
	if found != nil && !isProven(o.cfg.ReceiptKey, name, stored, *found) {
		found = nil
	}
	return answer{shard: shard, err: err, confirmed: confirmed, claim: found}
}

// isProven reports whether a claim is on a logical cluster in a state of after the hand-over that made the content of this shard outdated.
func isProven(secret []byte, name logicalcluster.Name, stored *storedCluster, c claim) bool {
	return c.Cluster == name.String() && string(c.UID) == stored.uid() && c.Epoch >= epochOf(stored.annotations()) && isSigned(secret, name, c.UID, c.Epoch, c.MAC)
}

// claimOn asks a shard for its claim on one logical cluster, nil if it has none, and whether it is confirmed.
func claimOn(ctx context.Context, shard *peer, name logicalcluster.Name) (found *claim, confirmed bool, err error) {
	response, err := requestClaims(ctx, shard, justBefore(name))
	if err != nil {
		return nil, false, err
	}
	for _, one := range response.Claims {
		switch {
		case one.Cluster == name.String():
			return &one, response.Confirmed, nil
		case one.Cluster > name.String():
			return nil, response.Confirmed, nil
		}
	}
	if response.More { // claims are sorted, and these begin at the name
		return nil, false, errors.New("its answer does not begin at the requested name")
	}
	return nil, response.Confirmed, nil
}

// justBefore returns a text that sorts before the name of a logical cluster, and after all smaller names: these contain no tilde, and nothing that sorts
// behind it.
func justBefore(name logicalcluster.Name) string {
	text := name.String()
	last := len(text) - 1
	return text[:last] + string(text[last]-1) + "~"
}
