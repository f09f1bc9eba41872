package shard

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/rekey"
	"github.com/atoll-dev/atoll/controllers/status"
)

// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=delete

const (
	// rekeyInterval is how often a re-keying checks what is missing.
	rekeyInterval = 10 * time.Second
	// confirmInterval is how often a re-keying that waits for the user checks it.
	confirmInterval = 5 * time.Minute
)

// rekey records the next step of the re-keying of the client CA. Everything is rendered from the record of the last reconcile, so a record
// that could not be written has had no effect. It has no influence on Ready: the installation serves.
func (s *rootShardScope) rekey(ctx context.Context) error {
	record := desired.CAState(s.root)
	if record == nil {
		return s.findClientCA(ctx)
	}
	state, wanted := rekey.FromStatus(record), wantedClientCA(s.root)
	var missing []string
	if state.Phase != rekey.Stable || wanted.Generation > state.Generation {
		var err error
		if missing, err = s.observeRekey(ctx, state); err != nil { // what cannot be observed stops the re-keying, and not the installation
			missing = []string{fmt.Sprintf("the re-keying cannot be observed: %v", err)}
		}
	}
	next := rekey.Decide(state, wanted, missing, s.now)
	switch {
	case rekey.AwaitsConfirmation(next, wanted, s.now): // which is an event
		s.Report.RequeueWithin(confirmInterval)
	case state.Phase != rekey.Stable || wanted.Generation > state.Generation:
		s.Report.RequeueWithin(rekeyInterval)
	}
	if next.Phase != state.Phase {
		s.Report.RequeueWithin(time.Second)
	}
	out := record.DeepCopy()
	next.ToStatus(out)
	out.BlockedBy = nil
	if next.Phase == state.Phase {
		out.BlockedBy = blockers(state, wanted, missing, s.root)
	}
	if err := s.describeClientCA(ctx, out); err != nil {
		return err
	}
	s.clientCA = out
	s.reportRekey(next, wanted, out.BlockedBy)
	return nil
}

func wantedClientCA(root *operatorv1alpha1.RootShard) rekey.Wanted {
	spec := desired.RekeyOf(root)
	return rekey.Wanted{Generation: spec.Generation, Retire: spec.RetireGeneration}
}

// findUnknownCA is findClientCA for an installation that is being deleted: its re-keying does not continue.
func (s *rootShardScope) findUnknownCA(ctx context.Context) error {
	if desired.KnowsCAs(s.root) {
		return nil
	}
	return s.findClientCA(ctx)
}

// findClientCA records the state of the client CA of an installation whose record does not exist: a new one, one that an operator without
// records has made, or one whose status was lost. In the last case nothing else may be changed before.
func (s *rootShardScope) findClientCA(ctx context.Context) error {
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := s.Cluster.List(ctx, secrets, client.InNamespace(s.root.Namespace)); err != nil {
		return fmt.Errorf("listing the Secrets of certificate authorities: %w", err)
	}
	var existing []int32
	for _, secret := range secrets.Items {
		if generation := generationOf(s.root, secret.Name); generation > 0 {
			existing = append(existing, generation)
		}
	}
	certificates := &certmanagerv1.CertificateList{}
	if err := s.Cluster.List(ctx, certificates, client.InNamespace(s.root.Namespace)); err != nil {
		return fmt.Errorf("listing the Certificates of certificate authorities: %w", err)
	}
	for i := range certificates.Items { // a CA that is not issued yet is the one that is to be trusted next
		certificate := &certificates.Items[i]
		if generation := generationOf(s.root, certificate.Name); generation > 0 && metav1.IsControlledBy(certificate, s.root) {
			existing = append(existing, generation)
		}
	}
	own, err := apply.Get[certmanagerv1.Certificate](ctx, s.Cluster, s.root.Namespace, pki.OperatorCertificate(s.root))
	if err != nil {
		return err
	}
	issuing := int32(0)
	if own != nil {
		issuing = generationOf(s.root, own.Spec.IssuerRef.Name)
	}
	found, ok := rekey.Find(wantedClientCA(s.root).Generation, existing, issuing)
	if !ok {
		slices.Sort(existing)
		s.Report.Set(status.Stall(operatorv1alpha1.ConditionCertificatesReady, "Ambiguous",
			"there are keys of the generations %v of client-ca, and no record of which are in use: delete the Certificates and Secrets %s-… of those that the annotation %s of no pod names; pods without it use generation 1",
			slices.Compact(existing), desired.CAName(s.root, desired.ClientCA), desired.ClientCATrustAnnotation))
		s.Deployment.ReportLive()
		return reconcile.ErrStop
	}
	s.clientCA = &operatorv1alpha1.CertificateAuthorityStatus{Name: operatorv1alpha1.ClientCA}
	found.ToStatus(s.clientCA)
	if err := s.describeClientCA(ctx, s.clientCA); err != nil { // servers go on to trust a next generation that exists
		return err
	}
	s.Report.RequeueWithin(time.Second)
	// A spec without an entry is rendered as the first generation, also if the entry was lost with the status.
	if !desired.KnowsCAs(s.root) || found.Phase != rekey.Stable || found.Generation > 1 {
		s.Report.Set(status.Wait(operatorv1alpha1.ConditionCertificatesReady, "Finding", "the client CA of generation %d was found; nothing is changed before that is recorded", found.Generation))
		s.Deployment.ReportLive()
		return reconcile.ErrStop
	}
	return nil
}

// generationOf returns the generation of the client CA whose objects have a name, or 0 for other names.
func generationOf(root *operatorv1alpha1.RootShard, name string) int32 {
	first := desired.CAOfGeneration(root, 1)
	if name == first {
		return 1
	}
	suffix, ok := strings.CutPrefix(name, first+"-")
	if !ok {
		return 0
	}
	generation, err := strconv.ParseInt(suffix, 10, 32)
	if err != nil || generation < 2 || desired.CAOfGeneration(root, int32(generation)) != name {
		return 0
	}
	return int32(generation)
}

// describeClientCA adds to the status what the Secrets of the recorded generations contain.
func (s *rootShardScope) describeClientCA(ctx context.Context, out *operatorv1alpha1.CertificateAuthorityStatus) error {
	out.SecretName, out.Fingerprint, out.NotAfter = desired.SigningCA(s.root, desired.ClientCA), "", nil
	if record := desired.CAState(s.root); record == nil || record.NextGeneration != out.NextGeneration {
		out.NextFingerprint = "" // else it remains while the Secret is missing: pods that trust the next generation keep that
	}
	for generation, fingerprint := range map[int32]*string{out.Generation: &out.Fingerprint, out.NextGeneration: &out.NextFingerprint} {
		if generation == 0 {
			continue
		}
		name := desired.CAOfGeneration(s.root, generation)
		secret, err := apply.Get[corev1.Secret](ctx, s.Cluster, s.root.Namespace, name)
		if err != nil {
			return err
		}
		if secret == nil {
			continue
		}
		certificate, err := pki.ParseCertificate(secret.Data[corev1.TLSCertKey])
		if err != nil {
			continue // the Certificate reports it
		}
		*fingerprint = pki.Fingerprint(certificate)
		if name == out.SecretName {
			out.NotAfter = &metav1.Time{Time: certificate.NotAfter}
		}
	}
	return nil
}

// maxBlockers is the limit of status.certificates.cas[].blockedBy.
const maxBlockers = 10

// blockers describes what the next phase waits for.
func blockers(state rekey.State, wanted rekey.Wanted, missing []string, root *operatorv1alpha1.RootShard) []string {
	out := missing
	if state.Phase == rekey.Issue && !rekey.IsConfirmed(state, wanted) {
		out = append(out, fmt.Sprintf("clients that the operator does not know may have certificates of generation %d: give them new kubeconfigs, then set retireGeneration of client-ca in spec.certificates.rekey of RootShard %s to %d",
			state.Generation, root.Name, state.Generation))
	}
	if len(out) > maxBlockers {
		out = append(out[:maxBlockers-1:maxBlockers-1], fmt.Sprintf("and %d more", len(out)-maxBlockers+1))
	}
	return out
}

// reportRekey sets the condition, which an installation with its first keys does not have.
func (s *rootShardScope) reportRekey(state rekey.State, wanted rekey.Wanted, blockedBy []string) {
	const condition = operatorv1alpha1.ConditionCertificatesRekeyed
	waiting := ""
	if len(blockedBy) > 0 {
		waiting = ": " + strings.Join(blockedBy, "; ")
	}
	switch {
	case state.Phase == rekey.Stable && wanted.Generation < state.Generation:
		s.Report.Set(status.Warn(condition, operatorv1alpha1.ReasonRetired, "client-ca has generation %d, and the key of generation %d does not come back: set generation to %d", state.Generation, wanted.Generation, state.Generation))
	case state.Phase == rekey.Stable && len(blockedBy) > 0:
		s.Report.Set(status.Warn(condition, operatorv1alpha1.ReasonRekeyBlocked, "client-ca has generation %d, and the re-keying to %d has not begun%s", state.Generation, wanted.Generation, waiting))
	case state.Phase == rekey.Stable && state.Generation == 1:
		s.Report.RemoveCondition(condition)
	case state.Phase == rekey.Stable:
		s.Report.Set(status.OK(condition, operatorv1alpha1.ReasonRekeyed, "client-ca has generation %d", state.Generation))
	case state.Phase == rekey.TrustBoth:
		s.Report.Set(status.Warn(condition, operatorv1alpha1.ReasonTrustBoth, "servers learn to trust generation %d of client-ca beside %d%s", state.Next, state.Generation, waiting))
	case state.Phase == rekey.Issue:
		s.Report.Set(status.Warn(condition, operatorv1alpha1.ReasonIssue, "certificates are issued by generation %d of client-ca; %d is trusted, too%s", state.Next, state.Generation, waiting))
	default:
		s.Report.Set(status.Warn(condition, operatorv1alpha1.ReasonRetire, "servers cease to trust generation %d of client-ca, %d remains%s", state.Generation, state.Next, waiting))
	}
}
