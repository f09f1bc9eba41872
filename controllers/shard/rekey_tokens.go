package shard

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/rekey"
	"github.com/atoll-dev/atoll/controllers/status"
)

// signers are the shards of the installation. Each has a key of each generation.
func (r rekeying) signers() []string {
	out := []string{r.root.Name}
	for _, member := range r.shards {
		out = append(out, member.Name)
	}
	return out
}

// secretsPrefix is what the names of the Secrets of all generations begin with.
func (r rekeying) secretsPrefix() string {
	if r.ca == desired.ServiceAccountKeys {
		return "<shard>-" + string(r.ca)
	}
	return desired.CAName(r.root, r.ca)
}

// observeTokenKeys returns what does not match the recorded state yet: the keys of a next generation, servers that do not accept or sign as
// recorded, and at last the keys of the previous generation. Nothing else has to be issued: clients get their tokens from the servers.
func (r rekeying) observeTokenKeys(ctx context.Context, state rekey.State) ([]string, error) {
	missing, err := r.missingTokenKeys(ctx, state.Generation, state.Next)
	if err != nil || len(missing) > 0 {
		return missing, err
	}
	servers, err := r.listTokenServers(ctx)
	if err != nil {
		return nil, err
	}
	out, err := r.findForeignTokenKeys(ctx)
	if err != nil {
		return nil, err
	}
	for _, server := range servers {
		reason, err := r.observeTokenServer(ctx, server)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			out = append(out, reason)
		}
	}
	if state.Phase != rekey.Retire || len(out) > 0 {
		return out, nil
	}
	for _, shard := range r.signers() {
		deleting, err := r.deleteCA(ctx, desired.TokenKey{Shard: shard, Generation: state.Generation}.Secret())
		if err != nil {
			return nil, err
		}
		out = append(out, deleting...)
	}
	return out, nil
}

// missingTokenKeys returns the shards of a generation that have no key of the next one.
func (r rekeying) missingTokenKeys(ctx context.Context, generation, next int32) ([]string, error) {
	var out []string
	for _, shard := range r.signers() {
		if signs, err := r.maySign(ctx, shard, generation); err != nil {
			return nil, err
		} else if !signs {
			continue
		}
		name := desired.TokenKey{Shard: shard, Generation: next}.Secret()
		secret, err := apply.Get[corev1.Secret](ctx, r.Cluster, r.root.Namespace, name)
		if err != nil {
			return nil, err
		}
		if secret != nil {
			if _, err := pki.ParseCertificate(secret.Data[corev1.TLSCertKey]); err == nil {
				continue
			}
		}
		out = append(out, fmt.Sprintf("Secret %s has no key yet: see Certificate %s", name, name))
	}
	return out, nil
}

// maySign reports whether a shard has servers, or a key for them, of a generation. One without, whose spec is invalid, signs nothing. It gets
// the keys that are in use when it starts, as a shard that is created later does.
func (r rekeying) maySign(ctx context.Context, shard string, generation int32) (bool, error) {
	if shard == r.root.Name {
		return true, nil
	}
	live, err := apply.Get[appsv1.Deployment](ctx, r.Cluster, r.root.Namespace, r.serverOf(shard))
	if err != nil || live != nil {
		return live != nil, err
	}
	secret, err := apply.Get[corev1.Secret](ctx, r.Cluster, r.root.Namespace, desired.TokenKey{Shard: shard, Generation: generation}.Secret())
	return secret != nil, err
}

// serverOf is the Deployment of a shard.
func (r rekeying) serverOf(shard string) string {
	if shard == r.root.Name {
		return desired.NewRootShard(r.root).Server()
	}
	return r.newShard(operatorv1alpha1.ShardMember{Name: shard}).Server()
}

// findForeignTokenKeys returns the shards that sign with, or accept, keys of the user.
func (r rekeying) findForeignTokenKeys(ctx context.Context) ([]string, error) {
	var out []string
	for _, shard := range r.signers() {
		live, err := apply.Get[appsv1.Deployment](ctx, r.Cluster, r.root.Namespace, r.serverOf(shard))
		if err != nil {
			return nil, err
		}
		if live == nil {
			continue
		}
		if flags := desired.ForeignTokenKeys(&live.Spec.Template); len(flags) > 0 {
			out = append(out, fmt.Sprintf("Deployment %s has %s with a key of your own, which a re-keying would not retire: remove it from extraArgs when no token of it is in use", live.Name, strings.Join(flags, " and ")))
		}
	}
	return out, nil
}

// awaitsTokenKeys reports whether a next generation is not recorded yet because a shard has no key of it: servers learn to accept the keys of
// all shards at once. In a record that was lost, servers may accept them already.
func (r rekeying) awaitsTokenKeys(ctx context.Context, out *operatorv1alpha1.CertificateAuthorityStatus, generation int32) (bool, error) {
	if r.ca != desired.ServiceAccountKeys || generation != out.NextGeneration || out.NextFingerprint != "" || desired.CAState(r.root, r.ca) == nil {
		return false, nil
	}
	missing, err := r.missingTokenKeys(ctx, out.Generation, generation)
	return len(missing) > 0, err
}

// listTokenServers returns the Deployments of the servers that accept tokens of service accounts: shards, and front proxies that are to.
func (r rekeying) listTokenServers(ctx context.Context) ([]string, error) {
	var out []string
	for _, shard := range r.signers() {
		out = append(out, r.serverOf(shard))
	}
	fronts := &operatorv1alpha1.FrontProxyList{}
	if err := r.Cluster.List(ctx, fronts, client.InNamespace(r.root.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the front proxies of RootShard %s: %w", r.root.Name, err)
	}
	sortByName(fronts.Items, func(front operatorv1alpha1.FrontProxy) string { return front.Name })
	for i := range fronts.Items {
		front := &fronts.Items[i]
		if ref := front.Spec.RootShard.Reference; ref == nil || ref.Name != r.root.Name {
			continue
		}
		if proxy := desired.NewFrontProxy(front, r.root); proxy.AcceptsTokens() {
			out = append(out, proxy.Server())
		}
	}
	return out, nil
}

// observeTokenServer returns why a server does not run with the recorded keys, or "". A server without a Deployment starts with them.
func (r rekeying) observeTokenServer(ctx context.Context, deployment string) (string, error) {
	live, err := apply.Get[appsv1.Deployment](ctx, r.Cluster, r.root.Namespace, deployment)
	if err != nil || live == nil {
		return "", err
	}
	if desired.LiveCATrust(&live.Spec.Template, r.ca) != desired.CATrust(r.root, r.ca) {
		return fmt.Sprintf("the pods of Deployment %s are to be replaced", deployment), nil
	}
	if reason := desired.CheckTokenKeys(&live.Spec.Template, r.root, r.signers()); reason != "" {
		return fmt.Sprintf("Deployment %s has not the keys of all shards: %s", deployment, reason), nil
	}
	return status.RolloutMessage(live, status.PodProblem{}), nil
}

// tokensInUse describes what the user has to do before the previous keys may be retired. Before all shards sign with the next ones, a token
// that somebody renews may be of the previous one again.
func (r rekeying) tokensInUse(state rekey.State, wanted rekey.Wanted) string {
	if !rekey.AwaitsConfirmation(state, wanted, r.now) {
		return fmt.Sprintf("wait until all shards sign with generation %d only: tokens that are renewed before that may have generation %d again", state.Next, state.Generation)
	}
	return fmt.Sprintf("tokens of service accounts that generation %d signed may be in use: those of Secrets do not expire, so delete each such Secret and create it again, by which it gets another token, and wait until tokens with an expiry have been renewed; then set retireGeneration of %s in spec.certificates.rekey of RootShard %s to %d",
		state.Generation, r.ca, r.root.Name, state.Generation)
}

// reportTokenKeys is the condition during a re-keying of the keys of tokens.
func reportTokenKeys(state rekey.State, waiting string) status.Result {
	const condition = operatorv1alpha1.ConditionCertificatesRekeyed
	switch state.Phase {
	case rekey.TrustBoth:
		return status.Warn(condition, operatorv1alpha1.ReasonTrustBoth, "servers learn to accept tokens of service accounts that generation %d of service-account signs, beside %d%s", state.Next, state.Generation, waiting)
	case rekey.Issue:
		return status.Warn(condition, operatorv1alpha1.ReasonIssue, "shards are to sign tokens of service accounts with generation %d of service-account; those of %d are accepted, too%s", state.Next, state.Generation, waiting)
	}
	return status.Warn(condition, operatorv1alpha1.ReasonRetire, "servers cease to accept tokens of service accounts that generation %d of service-account has signed, %d remains%s", state.Generation, state.Next, waiting)
}
