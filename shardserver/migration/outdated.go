package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

const (
	// askInterval is how often a shard asks those that have not answered; every laterInterval it lists shards to find new ones.
	askInterval   = 2 * time.Second
	laterInterval = 30 * time.Second
	hiddenPoll    = 20 * time.Millisecond
	// askTimeout bounds the request to one shard and the fencing that follows. Another attempt fences what the first one has not.
	askTimeout = 2 * time.Minute
	// releasePoll is how often a shard checks whether it was released while it asks other shards.
	releasePoll = time.Second
	// maxClaims bounds what another shard can make this one read.
	maxClaims = 10_000_000
	// restoredRounds is how often a restored shard asks all shards: a logical cluster that moves between two of them during the first round has
	// arrived by the second.
	restoredRounds = 2
)

// outdatedService finds the logical clusters that this shard has handed over after the backup from which its etcd was restored. It asks each other
// shard once for what that has received from this one, with the receipts that this shard has signed. A restored shard serves no logical cluster
// until all have answered, or an administrator has released it.
type outdatedService struct {
	cfg Config
	reader
	stored   *storedClusters
	transfer *transfer.Transfer
	// parentKnows is originService.parentKnows.
	parentKnows func(context.Context, *corev1alpha1.LogicalCluster) (bool, error)

	mu sync.Mutex
	// waiting is why a restored shard serves no logical clusters yet, or "".
	waiting string
}

// Waiting returns why a restored shard serves no logical clusters yet, or "".
func (o *outdatedService) Waiting() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting
}

func (o *outdatedService) setWaiting(reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = reason
}

// run asks other shards, including those that join later, until the context ends. Every replica does, because each serves requests.
func (o *outdatedService) run(ctx context.Context) {
	rounds := 1
	if !o.cfg.Fence.IsConfirmed() {
		rounds = restoredRounds
	}
	asked := map[string]int{} // by shard, how often it has answered
	for {
		interval := laterInterval
		asking, cancel := o.untilReleased(ctx)
		err := o.askAll(asking, asked, rounds)
		cancel()
		if err == nil || !o.cfg.Held() {
			o.confirm(ctx)
		}
		if err == nil && o.cfg.Held() {
			err = o.cfg.RecordConfirmation(ctx)
		}
		if err != nil {
			if !o.cfg.Fence.IsConfirmed() || errors.Is(err, errShardsUnknown) {
				interval = askInterval
			}
			o.setWaiting(err.Error())
			klog.FromContext(ctx).V(2).Info("Failed to ask all other shards for what they have got from this one", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

// untilReleased returns a context that ends when a person releases the restored shard: the question to a shard that never answers ends, too. The caller
// cancels it.
func (o *outdatedService) untilReleased(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if !o.cfg.Held() {
		return ctx, cancel
	}
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(releasePoll)
		defer ticker.Stop()
		for o.cfg.Held() {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
		cancel()
	})
	return ctx, func() {
		cancel()
		running.Wait()
	}
}

// everyCluster is the event for all logical clusters of this shard.
var everyCluster = controller.Request{ClusterName: logicalcluster.Wildcard}

// newConfirmed returns what tells publishers that a restored shard serves its logical clusters. A watch that begins after that has the event, too: what
// its reader has looked at before may have been too early.
func newConfirmed(fence Fence) *controller.Changes {
	restored := fence != nil && !fence.IsConfirmed()
	return controller.NewChanges(func() []controller.Request {
		if restored && fence.IsConfirmed() {
			return []controller.Request{everyCluster}
		}
		return nil
	})
}

// confirm lets the shard serve its logical clusters, and publish their content.
func (o *outdatedService) confirm(ctx context.Context) {
	if !o.cfg.Fence.IsConfirmed() {
		klog.FromContext(ctx).Info("The restored shard serves its logical clusters")
		o.cfg.Fence.Confirm()
		o.cfg.confirmed.Add(everyCluster)
	}
	o.setWaiting("")
}

// errShardsUnknown is returned while the other shards are unknown.
var errShardsUnknown = errors.New("the shards of the installation are not known yet")

// askAll asks the shards that have not answered as often as there are rounds. Each round begins when all have answered in the previous one.
func (o *outdatedService) askAll(ctx context.Context, asked map[string]int, rounds int) error {
	for round := range rounds {
		names, err := o.others(ctx)
		if err != nil {
			return err
		}
		for known := range asked {
			if !slices.Contains(names, known) {
				delete(asked, known)
			}
		}
		var failed []error
		for _, name := range names {
			if asked[name] > round {
				continue
			}
			if err := o.ask(ctx, name); err != nil {
				failed = append(failed, fmt.Errorf("asking shard %q: %w", name, err))
				continue
			}
			asked[name] = round + 1
		}
		if err := errors.Join(failed...); err != nil {
			return err
		}
	}
	return nil
}

// others returns the names of the other shards of the installation, sorted.
func (o *outdatedService) others(ctx context.Context) ([]string, error) {
	all, err := o.cfg.Others(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errShardsUnknown, err)
	}
	names := slices.Sorted(maps.Keys(all))
	return slices.DeleteFunc(names, func(name string) bool { return name == o.cfg.Shard }), nil
}

// ask fences what a shard has received from this one, and returns when no replica of the process serves that.
func (o *outdatedService) ask(ctx context.Context, shard string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	peer, err := o.cfg.Origins.connect(ctx, shard)
	if err != nil {
		return err
	}
	defer peer.close()
	return eachClaim(ctx, peer, func(one claim) error { return o.consider(ctx, one) })
}

// eachClaim asks a shard for all of its claims.
func eachClaim(ctx context.Context, shard *peer, do func(claim) error) error {
	after := ""
	for seen := 0; seen < maxClaims; {
		response, err := requestClaims(ctx, shard, after)
		if err != nil {
			return err
		}
		for _, one := range response.Claims {
			if one.Cluster <= after {
				return errors.New("it answers again with what it has answered before")
			}
			after = one.Cluster
			if err := do(one); err != nil {
				return err
			}
		}
		switch seen += len(response.Claims); {
		case !response.More:
			return nil
		case len(response.Claims) < maxClaimsPerResponse:
			return errors.New("it answers in smaller parts than shards do")
		}
	}
	return fmt.Errorf("it claims more than %d logical clusters", maxClaims)
}

// requestClaims asks a shard for its claims on logical clusters whose names sort behind a text.
func requestClaims(ctx context.Context, shard *peer, after string) (*claimsResponse, error) {
	response, err := post[claimsResponse](ctx, shard, claimsPath(), claimsRequest{After: after})
	if missing := (*notFoundError)(nil); errors.As(err, &missing) {
		return nil, fmt.Errorf("%w: enable the feature gate LogicalClusterMigration of this shard, or upgrade it", err)
	}
	return response, err
}

// consider fences the logical cluster of a claim if the claim proves that this shard has handed it over.
func (o *outdatedService) consider(ctx context.Context, one claim) error {
	name, err := logicalcluster.ParseName(one.Cluster)
	if err != nil {
		return nil //nolint:nilerr // this shard has none of that name
	}
	cached, err := o.clusters.Get(logicalcluster.With(ctx, name), "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return nil // the watch cache has read what is in etcd since the restore
	}
	if err != nil {
		return fmt.Errorf("reading logical cluster %q: %w", name, err)
	}
	if cached.UID != one.UID || movestate.Of(cached.Annotations) == movestate.MovedAway {
		return nil
	}
	errCurrent := errors.New("the logical cluster is not outdated")
	_, err = o.stored.update(ctx, name, func(stored *storedCluster, annotations map[string]string) error {
		if !isOutdated(o.cfg.Shard, o.cfg.ReceiptKey, stored, one) {
			return errCurrent
		}
		markOutdated(annotations, one, time.Now())
		return nil
	})
	switch {
	case errors.Is(err, errCurrent):
		return nil
	case err != nil:
		return err
	}
	klog.FromContext(ctx).Info("Another shard has a logical cluster that this one has from an older state of etcd: this one does not serve it", "cluster", name, "shard", one.Holder, "epoch", one.Epoch)
	return o.awaitHidden(ctx, name)
}

// markOutdated writes what the hand-over had written. A migration that has not ended gets the reports of that (Origin.Report).
func markOutdated(annotations map[string]string, one claim, now time.Time) {
	for _, key := range []string{corev1alpha1.MigratingAnnotationKey, corev1alpha1.WritesPausedAnnotationKey, corev1alpha1.PauseAfterAnnotationKey} {
		delete(annotations, key)
	}
	annotations[corev1alpha1.MovedToAnnotationKey] = one.Holder
	annotations[corev1alpha1.ShardAnnotationKey] = one.Holder
	annotations[corev1alpha1.EpochAnnotationKey] = strconv.FormatInt(one.Epoch, 10)
	annotations[corev1alpha1.OutdatedAnnotationKey] = now.UTC().Format(time.RFC3339)
}

// awaitHidden returns when this replica serves nothing of a logical cluster.
func (o *outdatedService) awaitHidden(ctx context.Context, name logicalcluster.Name) error {
	ticker := time.NewTicker(hiddenPoll)
	defer ticker.Stop()
	for {
		cached, err := o.clusters.Get(logicalcluster.With(ctx, name), "", corev1alpha1.LogicalClusterName)
		if o.cfg.Fence.Hides(name) && (apierrors.IsNotFound(err) || err == nil && movestate.Of(cached.Annotations).IsHidden()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until this replica serves nothing of logical cluster %q: %w", name, ctx.Err())
		case <-ticker.C:
		}
	}
}

// Problem returns the reason and the message of the condition MovesKnown; both are empty if it is True.
func (o *outdatedService) Problem() (reason, message string) {
	if !o.cfg.Fence.IsConfirmed() {
		waiting := cmp.Or(o.Waiting(), "the other shards of the installation are not known yet")
		return corev1alpha1.ReasonOtherShardsNotAsked, "The shard was restored, and refuses requests to logical clusters until it knows which of them other shards have got since the backup: " + strings.ReplaceAll(waiting, "\n", "; ") +
			". Start these shards, delete the Shards of those that are gone for good, or release the restore if no logical cluster has moved since the backup"
	}
	if outdated := o.cfg.Fence.Outdated(); outdated > 0 {
		return corev1alpha1.ReasonOutdatedLogicalClusters, fmt.Sprintf("The etcd of the shard was restored to a state of before moves to other shards, for %d of its logical clusters. Other shards serve these, and this one does not: nothing is to be done for users. The old content stays in its etcd until you delete it, by DELETE "+outdatedPath+"/<name>", outdated)
	}
	return "", ""
}
