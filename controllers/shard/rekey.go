package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
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

// rekeying is one certificate authority of an installation during a reconcile, or the keys of service account tokens. Each is re-keyed by itself.
type rekeying struct {
	*rootShardScope
	ca desired.CA
}

// rekey records the next step of the re-keying of each certificate authority. Everything is rendered from the record of the last reconcile,
// so a record that could not be written has had no effect. It has no influence on Ready: the installation serves.
func (s *rootShardScope) rekey(ctx context.Context) error {
	var results []status.Result
	err := s.eachCA(func(r rekeying) error {
		result, err := r.step(ctx)
		if result.Type != "" {
			results = append(results, result)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case len(results) == 0:
		s.Report.RemoveCondition(operatorv1alpha1.ConditionCertificatesRekeyed)
	default:
		s.Report.Set(joinRekeyed(results))
	}
	return nil
}

// recordCAs writes the new records into the status. A CA without a new one keeps the last.
func (s *rootShardScope) recordCAs() {
	var cas []operatorv1alpha1.CertificateAuthorityStatus
	for _, ca := range desired.Rekeyable() {
		record := s.cas[ca]
		if record == nil {
			record = desired.CAState(s.root, ca)
		}
		if record != nil {
			cas = append(cas, *record)
		}
	}
	if len(cas) > 0 {
		s.root.Status.Certificates = &operatorv1alpha1.CertificatesStatus{CAs: cas}
	}
}

// findUnknownCAs finds the records of an installation that is being deleted: its re-keyings do not continue.
func (s *rootShardScope) findUnknownCAs(ctx context.Context) error {
	return s.eachCA(func(r rekeying) error {
		if desired.KnowsCA(r.root, r.ca) {
			return nil
		}
		return r.find(ctx)
	})
}

// eachCA calls a function for each CA. An ErrStop of one does not keep the others from being recorded.
func (s *rootShardScope) eachCA(run func(rekeying) error) error {
	var stop error
	for _, ca := range desired.Rekeyable() {
		err := run(rekeying{s, ca})
		if err != nil && !errors.Is(err, reconcile.ErrStop) {
			return err
		}
		stop = errors.Join(stop, err)
	}
	return stop
}

// joinRekeyed is the condition about several CAs: the reason is that of the first that is in progress, and the message is about all of these.
func joinRekeyed(results []status.Result) status.Result {
	if warnings := slices.DeleteFunc(slices.Clone(results), func(r status.Result) bool { return r.State == status.Satisfied }); len(warnings) > 0 {
		results = warnings
	}
	out := results[0]
	for _, result := range results[1:] {
		out.Message += "; " + result.Message
	}
	return out
}

// step records the next step of one CA.
func (r rekeying) step(ctx context.Context) (status.Result, error) {
	record := desired.CAState(r.root, r.ca)
	if record == nil {
		return status.Result{}, r.find(ctx)
	}
	state, wanted := rekey.FromStatus(record), r.wanted()
	var missing []string
	if state.Phase != rekey.Stable || wanted.Generation > state.Generation {
		var err error
		if missing, err = r.findMissing(ctx, state, wanted); err != nil { // what cannot be observed stops the re-keying, and not the installation
			missing = []string{fmt.Sprintf("the re-keying cannot be observed: %v", err)}
		}
	}
	next := rekey.Decide(state, wanted, missing, r.now)
	switch {
	case rekey.AwaitsConfirmation(next, wanted, r.now): // which is an event
		r.Report.RequeueWithin(confirmInterval)
	case state.Phase != rekey.Stable || wanted.Generation > state.Generation:
		r.Report.RequeueWithin(rekeyInterval)
	}
	if next.Phase != state.Phase {
		r.Report.RequeueWithin(time.Second)
	}
	out := record.DeepCopy()
	next.ToStatus(out)
	out.BlockedBy = nil
	if next.Phase == state.Phase {
		out.BlockedBy = r.blockers(next, wanted, missing)
	}
	if err := r.describe(ctx, out); err != nil {
		return status.Result{}, err
	}
	r.cas[r.ca] = out
	return r.report(next, wanted, out.BlockedBy), nil
}

func (r rekeying) wanted() rekey.Wanted {
	spec := desired.RekeyOf(r.root, r.ca)
	return rekey.Wanted{Generation: spec.Generation, Retire: spec.RetireGeneration}
}

// find records the state of a CA whose record does not exist: of a new installation, of one that an operator without records has made, or of
// one whose status was lost. In the last case nothing else may be changed before.
func (r rekeying) find(ctx context.Context) error {
	existing, err := r.listGenerations(ctx)
	if err != nil {
		return err
	}
	issuing, err := r.findIssuing(ctx)
	if err != nil {
		return err
	}
	found, ok := rekey.Find(r.wanted().Generation, existing, issuing)
	if !ok {
		slices.Sort(existing)
		r.Report.Set(status.Stall(operatorv1alpha1.ConditionCertificatesReady, "Ambiguous",
			"there are keys of the generations %v of %s, and no record of which are in use: delete the Certificates and Secrets %s-… of those that the annotation %s of no pod names; pods without it use generation 1",
			slices.Compact(existing), r.ca, r.secretsPrefix(), desired.TrustAnnotation(r.ca)))
		r.Deployment.ReportLive()
		return reconcile.ErrStop
	}
	out := &operatorv1alpha1.CertificateAuthorityStatus{Name: operatorv1alpha1.RekeyableCA(r.ca)}
	found.ToStatus(out)
	if err := r.describe(ctx, out); err != nil { // servers go on to trust a next generation that exists
		return err
	}
	r.cas[r.ca] = out
	r.Report.RequeueWithin(time.Second)
	// A spec without an entry is rendered as the first generation, also if the entry was lost with the status.
	if !desired.KnowsCA(r.root, r.ca) || found.Phase != rekey.Stable || found.Generation > 1 {
		r.Report.SetWorst(status.Wait(operatorv1alpha1.ConditionCertificatesReady, "Finding", "%s of generation %d was found; nothing is changed before that is recorded", r.ca, found.Generation))
		r.Deployment.ReportLive()
		return reconcile.ErrStop
	}
	return nil
}

// listGenerations returns the generations with a Secret of cert-manager, or with a Certificate of the operator. A user may have another Secret
// with the name of a later generation, but not with that of the first, which may have been restored by hand.
func (r rekeying) listGenerations(ctx context.Context) ([]int32, error) {
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := r.Cluster.List(ctx, secrets, client.InNamespace(r.root.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the Secrets of certificate authorities: %w", err)
	}
	var existing []int32
	for _, secret := range secrets.Items {
		generation := r.generationOf(secret.Name)
		if generation == 1 || generation > 1 && secret.Annotations[certmanagerv1.CertificateNameKey] == secret.Name {
			existing = append(existing, generation)
		}
	}
	certificates := &certmanagerv1.CertificateList{}
	if err := r.Cluster.List(ctx, certificates, client.InNamespace(r.root.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the Certificates of certificate authorities: %w", err)
	}
	for i := range certificates.Items { // a CA that is not issued yet is the one that is to be trusted next
		certificate := &certificates.Items[i]
		if generation := r.generationOf(certificate.Name); generation > 0 && isOfOperator(certificate) {
			existing = append(existing, generation)
		}
	}
	return existing, nil
}

// findIssuing returns the generation that issues, or 0 if that is unknown. Of the keys of tokens it is the one with which the pods of the root
// shard sign: there is no certificate that a key of tokens has issued.
func (r rekeying) findIssuing(ctx context.Context) (int32, error) {
	if r.ca == desired.ServiceAccountKeys {
		live, err := apply.Get[appsv1.Deployment](ctx, r.Cluster, r.root.Namespace, desired.NewRootShard(r.root).Server())
		if err != nil || live == nil {
			return 0, err
		}
		return desired.LiveSigner(&live.Spec.Template, r.ca), nil
	}
	own, err := apply.Get[certmanagerv1.Certificate](ctx, r.Cluster, r.root.Namespace, r.ownCertificate())
	if err != nil || own == nil {
		return 0, err
	}
	return r.generationOf(own.Spec.IssuerRef.Name), nil
}

// ownCertificate is the certificate of the CA that the reconciler of the RootShard itself applies: its issuer determines which generation signs.
func (r rekeying) ownCertificate() string {
	if r.ca == desired.RequestHeaderCA {
		return desired.NewInternalProxy(r.root).Certificate("requestheader")
	}
	return pki.OperatorCertificate(r.root)
}

// generationOf returns the generation of the CA whose objects have a name, or 0 for other names.
func (r rekeying) generationOf(name string) int32 {
	if r.ca == desired.ServiceAccountKeys {
		if key, ok := desired.ParseTokenKey(name); ok && slices.Contains(r.signers(), key.Shard) {
			return key.Generation
		}
		return 0
	}
	first := desired.CAOfGeneration(r.root, r.ca, 1)
	if name == first {
		return 1
	}
	suffix, ok := strings.CutPrefix(name, first+"-")
	if !ok {
		return 0
	}
	generation, err := strconv.ParseInt(suffix, 10, 32)
	if err != nil || generation < 2 || desired.CAOfGeneration(r.root, r.ca, int32(generation)) != name {
		return 0
	}
	return int32(generation)
}

// describe adds to the status what the Secrets of the recorded generations contain.
func (r rekeying) describe(ctx context.Context, out *operatorv1alpha1.CertificateAuthorityStatus) error {
	out.SecretName, out.Fingerprint, out.NotAfter = desired.SigningCA(r.root, r.ca), "", nil
	if record := desired.CAState(r.root, r.ca); record == nil || record.NextGeneration != out.NextGeneration {
		out.NextFingerprint = "" // else it remains while the Secret is missing: pods that trust the next generation keep that
	}
	for generation, fingerprint := range map[int32]*string{out.Generation: &out.Fingerprint, out.NextGeneration: &out.NextFingerprint} {
		if generation == 0 {
			continue
		}
		name := desired.CAOfGeneration(r.root, r.ca, generation)
		secret, err := apply.Get[corev1.Secret](ctx, r.Cluster, r.root.Namespace, name)
		if err != nil {
			return err
		}
		if secret == nil {
			continue
		}
		if awaits, err := r.awaitsTokenKeys(ctx, out, generation); err != nil {
			return err
		} else if awaits {
			continue
		}
		certificate, err := pki.ParseCertificate(secret.Data[corev1.TLSCertKey])
		if err != nil {
			continue // the Certificate reports it
		}
		*fingerprint = pki.Fingerprint(certificate)
		if name == out.SecretName && r.ca != desired.ServiceAccountKeys { // a token is valid whatever its key's certificate says
			out.NotAfter = &metav1.Time{Time: certificate.NotAfter}
		}
	}
	return nil
}

// maxBlockers is the limit of status.certificates.cas[].blockedBy.
const maxBlockers = 10

// blockers describes what the next phase waits for.
func (r rekeying) blockers(state rekey.State, wanted rekey.Wanted, missing []string) []string {
	out := missing
	switch {
	case state.Phase != rekey.Issue || rekey.IsConfirmed(state, wanted):
	case r.ca == desired.ServiceAccountKeys:
		out = append(out, r.tokensInUse(state, wanted))
	default:
		unknown, give := "clients", "new kubeconfigs"
		if r.ca == desired.RequestHeaderCA {
			unknown, give = "proxies", "new certificates"
		}
		out = append(out, fmt.Sprintf("%s that the operator does not know may have certificates of generation %d: give them %s, then set retireGeneration of %s in spec.certificates.rekey of RootShard %s to %d",
			unknown, state.Generation, give, r.ca, r.root.Name, state.Generation))
	}
	if len(out) > maxBlockers {
		out = append(out[:maxBlockers-1:maxBlockers-1], fmt.Sprintf("and %d more", len(out)-maxBlockers+1))
	}
	return out
}

// report returns the condition, which a CA with its first key does not have.
func (r rekeying) report(state rekey.State, wanted rekey.Wanted, blockedBy []string) status.Result {
	const condition = operatorv1alpha1.ConditionCertificatesRekeyed
	waiting := ""
	if len(blockedBy) > 0 {
		waiting = ": " + strings.Join(blockedBy, "; ")
	}
	switch {
	case state.Phase == rekey.Stable && wanted.Generation < state.Generation:
		return status.Warn(condition, operatorv1alpha1.ReasonRetired, "%s has generation %d, and the key of generation %d does not come back: set generation to %d", r.ca, state.Generation, wanted.Generation, state.Generation)
	case state.Phase == rekey.Stable && len(blockedBy) > 0:
		return status.Warn(condition, operatorv1alpha1.ReasonRekeyBlocked, "%s has generation %d, and the re-keying to %d has not begun%s", r.ca, state.Generation, wanted.Generation, waiting)
	case state.Phase == rekey.Stable && state.Generation == 1:
		return status.Result{}
	case state.Phase == rekey.Stable:
		return status.OK(condition, operatorv1alpha1.ReasonRekeyed, "%s has generation %d", r.ca, state.Generation)
	case r.ca == desired.ServiceAccountKeys:
		return reportTokenKeys(state, waiting)
	case state.Phase == rekey.TrustBoth:
		return status.Warn(condition, operatorv1alpha1.ReasonTrustBoth, "servers learn to trust generation %d of %s beside %d%s", state.Next, r.ca, state.Generation, waiting)
	case state.Phase == rekey.Issue:
		return status.Warn(condition, operatorv1alpha1.ReasonIssue, "certificates are issued by generation %d of %s; %d is trusted, too%s", state.Next, r.ca, state.Generation, waiting)
	}
	return status.Warn(condition, operatorv1alpha1.ReasonRetire, "servers cease to trust generation %d of %s, %d remains%s", state.Generation, r.ca, state.Next, waiting)
}
