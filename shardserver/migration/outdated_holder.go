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
	// claim is the one that the shard proves by a receipt of this one; nil without one.
	claim *claim
}

// holds reports whether the shard has the logical cluster.
func (a answer) holds() bool { return a.claim != nil && a.claim.Holder == a.shard }

// findHolder returns the claim of the shard that has the logical cluster; nil if all others say that they do not. The shard to which the logical cluster had
// moved is asked first, and alone if it has the logical cluster.
func (o *outdatedService) findHolder(ctx context.Context, name logicalcluster.Name, stored *storedCluster) (*claim, error) {
	ctx, cancel := context.WithTimeout(ctx, holdersTimeout)
	defer cancel()
	recorded := stored.annotations()[corev1alpha1.MovedToAnnotationKey]
	others, err := o.others(ctx)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	first, rest := []string(nil), others
	if at := slices.Index(others, recorded); at >= 0 {
		first, rest = others[at:at+1], slices.Concat(others[:at], others[at+1:])
	}
	answers := o.askAbout(ctx, first, name, stored)
	if !slices.ContainsFunc(answers, answer.holds) {
		answers = append(answers, o.askAbout(ctx, rest, name, stored)...)
	}
	holder, err := decideHolder(answers)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable("whether another shard has the logical cluster is unknown: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return holder, nil
}

// decideHolder returns the claim of the shard that has a logical cluster; nil if none has it; or an error if that is unknown.
func decideHolder(answers []answer) (*claim, error) {
	var failed []error
	for _, one := range answers {
		switch {
		case one.holds():
			return one.claim, nil
		case one.err != nil:
			failed = append(failed, fmt.Errorf("asking shard %q: %w", one.shard, one.err))
		}
	}
	return nil, errors.Join(failed...)
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
	found, err := claimOn(ctx, peer, name)
	if found != nil && !isProven(o.cfg.ReceiptKey, name, stored, *found) {
		found = nil
	}
	return answer{shard: shard, err: err, claim: found}
}

// isProven reports whether a claim is on a logical cluster in a state of after the hand-over that made the content of this shard outdated.
func isProven(secret []byte, name logicalcluster.Name, stored *storedCluster, c claim) bool {
	return c.Cluster == name.String() && string(c.UID) == stored.uid() && c.Epoch >= epochOf(stored.annotations()) && isSigned(secret, name, c.UID, c.Epoch, c.MAC)
}

// claimOn asks a shard for its claim on one logical cluster; nil if it has none.
func claimOn(ctx context.Context, shard *peer, name logicalcluster.Name) (*claim, error) {
	response, err := requestClaims(ctx, shard, justBefore(name))
	if err != nil {
		return nil, err
	}
	for _, one := range response.Claims {
		switch {
		case one.Cluster == name.String():
			return &one, nil
		case one.Cluster > name.String():
			return nil, nil
		}
	}
	if response.More { // claims are sorted, and these begin at the name
		return nil, errors.New("its answer does not begin where it should")
	}
	return nil, nil
}

// justBefore returns a text that sorts before the name of a logical cluster, and after all smaller names: these contain no tilde, and nothing that sorts
// behind it.
func justBefore(name logicalcluster.Name) string {
	text := name.String()
	last := len(text) - 1
	return text[:last] + string(text[last]-1) + "~"
}
