// Package rekey decides the steps by which a certificate authority of an installation gets another key while the installation serves. All
// functions are pure: the reconciler of RootShards observes, records the decision in the status, and renders what the record says.
//
// The rule of all steps: at every moment, each server accepts the certificates of each generation that a client may still present.
package rekey

import (
	"slices"
	"time"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Phases of a re-keying.
const (
	Stable    = operatorv1alpha1.CertificateAuthorityStable
	TrustBoth = operatorv1alpha1.CertificateAuthorityTrustBoth
	Issue     = operatorv1alpha1.CertificateAuthorityIssue
	Retire    = operatorv1alpha1.CertificateAuthorityRetire
)

const (
	// TrustHold is how long nothing must be missing before the new key issues. It covers reconciles that have read an older record, files of
	// pods that a kubelet has from its cache, and pods that still serve while they terminate.
	TrustHold = 2 * time.Minute
	// IssueHold is how long nothing must be missing before the previous key is retired. It covers in addition clients that read
	// their certificate from a file again every five minutes, and tools that read a kubeconfig from its Secret.
	IssueHold = 10 * time.Minute
)

// State is the recorded state of a certificate authority. The zero value of ReadySince means that something was missing.
type State struct {
	Phase            operatorv1alpha1.CertificateAuthorityPhase
	Generation, Next int32 // Next is 0 in the phase Stable
	ReadySince       time.Time
}

// Wanted is the spec: the generation, and the last generation that may be retired.
type Wanted struct{ Generation, Retire int32 }

// Decide returns the next state. It changes one thing at a time, and returns the state itself if nothing is to be done. missing has the
// servers and certificates that do not match the state yet, in the phase Stable what prevents that a re-keying begins.
func Decide(state State, wanted Wanted, missing []string, now time.Time) State {
	if state.Phase == Stable {
		if wanted.Generation > state.Generation && len(missing) == 0 {
			return State{Phase: TrustBoth, Generation: state.Generation, Next: wanted.Generation}
		}
		return state
	}
	switch {
	case len(missing) > 0:
		state.ReadySince = time.Time{}
		return state
	case state.ReadySince.IsZero() || state.ReadySince.After(now): // a clock that was set back does not stop the re-keying
		state.ReadySince = now
		return state
	case now.Sub(state.ReadySince) < hold(state.Phase):
		return state
	}
	switch state.Phase {
	case TrustBoth:
		return State{Phase: Issue, Generation: state.Generation, Next: state.Next}
	case Issue:
		if IsConfirmed(state, wanted) {
			return State{Phase: Retire, Generation: state.Generation, Next: state.Next}
		}
	case Retire:
		return State{Phase: Stable, Generation: state.Next}
	}
	return state
}

// IsConfirmed reports whether the user has confirmed that no unknown client has a certificate of the previous generation.
func IsConfirmed(state State, wanted Wanted) bool { return wanted.Retire >= state.Generation }

// AwaitsConfirmation reports whether a state lacks only the confirmation of the user.
func AwaitsConfirmation(state State, wanted Wanted, now time.Time) bool {
	return state.Phase == Issue && !state.ReadySince.IsZero() && now.Sub(state.ReadySince) >= IssueHold && !IsConfirmed(state, wanted)
}

func hold(phase operatorv1alpha1.CertificateAuthorityPhase) time.Duration {
	switch phase {
	case TrustBoth:
		return TrustHold
	case Issue:
		return IssueHold
	}
	return 0
}

// Find returns the state of an authority that has no record any more. existing are the generations that have a Secret or a Certificate, and
// issuing is the one that has issued the operator's own certificate, 0 if that is unknown. The state trusts every generation that may be in
// use: it may repeat phases, and never skips one. A generation that does not exist is begun only if there is one other. If three generations
// exist, each may be in use and no state trusts three: then Find returns false.
func Find(wanted int32, existing []int32, issuing int32) (State, bool) {
	existing = slices.Compact(slices.Sorted(slices.Values(existing)))
	switch len(existing) {
	case 0:
		return State{Phase: Stable, Generation: wanted}, true
	case 1:
		if only := existing[0]; only < wanted {
			return State{Phase: TrustBoth, Generation: only, Next: wanted}, true
		}
		return State{Phase: Stable, Generation: existing[0]}, true
	case 2:
		if issuing == existing[1] {
			return State{Phase: Issue, Generation: existing[0], Next: existing[1]}, true
		}
		return State{Phase: TrustBoth, Generation: existing[0], Next: existing[1]}, true
	}
	return State{}, false
}
