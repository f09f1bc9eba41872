package shard

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/rekey"
	"github.com/atoll-dev/atoll/controllers/status"
)

// trustingServer is a server that accepts certificates of a CA.
type trustingServer struct{ deployment, bundle string }

// findMissing returns why a re-keying does not continue: what does not match the recorded state yet, and a Restore that is not released. The
// spec of a restored RootShard may confirm a retirement of the time after the backup, whose tokens and kubeconfigs have the previous key.
func (r rekeying) findMissing(ctx context.Context, state rekey.State, wanted rekey.Wanted) ([]string, error) {
	missing, err := r.observe(ctx, state)
	if err != nil || state.Phase != rekey.Issue || !rekey.IsConfirmed(state, wanted) {
		return missing, err
	}
	restore, err := dependencies.FindUnreleasedRestore(ctx, r.Cluster, r.root)
	if err != nil || restore == "" {
		return missing, err
	}
	return append(missing, fmt.Sprintf("Restore %s is not released, and tokens and kubeconfigs of its time may be of generation %d: remove retireGeneration of %s from spec.certificates.rekey of RootShard %s until they have been renewed, and release the Restore",
		restore, state.Generation, r.ca, r.root.Name)), nil
}

// observe returns what does not match the recorded state yet, servers first.
func (r rekeying) observe(ctx context.Context, state rekey.State) ([]string, error) {
	if state.Phase == rekey.Stable { // before a re-keying
		if r.ca == desired.ServiceAccountKeys {
			return r.findForeignTokenKeys(ctx)
		}
		servers, err := r.listServers(ctx)
		return sharedBundles(servers), err
	}
	if r.ca == desired.ServiceAccountKeys {
		return r.observeTokenKeys(ctx, state)
	}
	authority, missing, err := r.readCA(ctx, state.Next)
	if err != nil || missing != "" {
		return []string{missing}, err
	}
	out, err := r.observeServers(ctx, state)
	if err != nil {
		return nil, err
	}
	switch state.Phase {
	case rekey.Issue:
		certificates, err := r.observeCertificates(ctx, authority)
		if err != nil {
			return nil, err
		}
		out = append(out, certificates...)
	case rekey.Retire:
		if len(out) > 0 {
			return out, nil // its key is deleted after no server trusts it
		}
		return r.deleteCA(ctx, desired.CAOfGeneration(r.root, r.ca, state.Generation))
	}
	return out, nil
}

// readCA returns the certificate of a generation, or what is missing for it.
func (r rekeying) readCA(ctx context.Context, generation int32) (file []byte, missing string, err error) {
	name := desired.CAOfGeneration(r.root, r.ca, generation)
	secret, err := apply.Get[corev1.Secret](ctx, r.Cluster, r.root.Namespace, name)
	if err != nil {
		return nil, "", err
	}
	if secret != nil {
		if _, err := pki.ParseCertificate(secret.Data[corev1.TLSCertKey]); err == nil {
			return pki.FirstCertificate(secret.Data[corev1.TLSCertKey]), "", nil
		}
	}
	return nil, fmt.Sprintf("Secret %s has no certificate yet: see Certificate %s", name, name), nil
}

// observeServers returns the servers that do not all run with the recorded trust.
func (r rekeying) observeServers(ctx context.Context, state rekey.State) ([]string, error) {
	servers, err := r.listServers(ctx)
	if err != nil {
		return nil, err
	}
	var trusted, refused [][]byte
	for _, generation := range []int32{state.Generation, state.Next} {
		file, missing, err := r.readCA(ctx, generation)
		switch {
		case err != nil:
			return nil, err
		case generation == state.Generation && state.Phase == rekey.Retire:
			if missing == "" {
				refused = append(refused, file)
			}
		case missing != "":
			return []string{missing}, nil
		default:
			trusted = append(trusted, file)
		}
	}
	var out []string
	out = append(out, sharedBundles(servers)...)
	for _, server := range servers {
		reason, err := r.observeServer(ctx, server, trusted, refused)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			out = append(out, reason)
		}
	}
	return out, nil
}

// sharedBundles returns the Secrets that several servers would write, each with its own content: a FrontProxy may have the name of a shard.
func sharedBundles(servers []trustingServer) []string {
	var out []string
	owners := map[string]string{}
	for _, server := range servers {
		if other, ok := owners[server.bundle]; ok {
			out = append(out, fmt.Sprintf("Deployments %s and %s would have the same Secret %s: give one of their resources another name", other, server.deployment, server.bundle))
		}
		owners[server.bundle] = server.deployment
	}
	return out
}

// observeServer returns why a server does not run with the recorded trust, or "". A server without a Deployment starts with it.
func (r rekeying) observeServer(ctx context.Context, server trustingServer, trusted, refused [][]byte) (string, error) {
	live, err := apply.Get[appsv1.Deployment](ctx, r.Cluster, r.root.Namespace, server.deployment)
	if err != nil || live == nil {
		return "", err
	}
	bundle, err := apply.Get[corev1.Secret](ctx, r.Cluster, r.root.Namespace, server.bundle)
	if err != nil {
		return "", err
	}
	contains := func(file []byte) bool {
		return bundle != nil && bytes.Contains(bundle.Data[corev1.TLSCertKey], bytes.TrimSpace(file))
	}
	lacks := func(file []byte) bool { return !contains(file) }
	switch {
	case slices.ContainsFunc(trusted, lacks):
		return fmt.Sprintf("Secret %s, which has what Deployment %s trusts, is to be written", server.bundle, server.deployment), nil
	case slices.ContainsFunc(refused, contains):
		return fmt.Sprintf("Secret %s, which has what Deployment %s trusts, contains the previous %s", server.bundle, server.deployment, r.ca), nil
	case desired.LiveCATrust(&live.Spec.Template, r.ca) != desired.CATrust(r.root, r.ca):
		return fmt.Sprintf("the pods of Deployment %s are to be replaced", server.deployment), nil
	}
	return status.RolloutMessage(live, status.PodProblem{}), nil
}

// listServers returns the servers of the installation, in the order of kinds and names.
func (r rekeying) listServers(ctx context.Context) ([]trustingServer, error) {
	internal := desired.NewInternalProxy(r.root)
	out := []trustingServer{
		{desired.NewRootShard(r.root).Server(), desired.MergedCA(r.ca, r.root.Name)},
		{internal.Server(), desired.MergedCA(r.ca, internal.BundleOwner())},
	}
	isShard := map[string]bool{}
	for _, member := range r.shards {
		isShard[member.Name] = true
		out = append(out, trustingServer{r.newShard(member).Server(), desired.MergedCA(r.ca, member.Name)})
	}
	fronts, virtual := &operatorv1alpha1.FrontProxyList{}, &operatorv1alpha1.VirtualWorkspaceList{}
	for _, list := range []client.ObjectList{fronts, virtual} {
		if err := r.Cluster.List(ctx, list, client.InNamespace(r.root.Namespace)); err != nil {
			return nil, fmt.Errorf("listing the servers of RootShard %s: %w", r.root.Name, err)
		}
	}
	sortByName(fronts.Items, func(front operatorv1alpha1.FrontProxy) string { return front.Name })
	sortByName(virtual.Items, func(server operatorv1alpha1.VirtualWorkspace) string { return server.Name })
	for i := range fronts.Items {
		front := &fronts.Items[i]
		if ref := front.Spec.RootShard.Reference; ref != nil && ref.Name == r.root.Name {
			proxy := desired.NewFrontProxy(front, r.root)
			out = append(out, trustingServer{proxy.Server(), desired.MergedCA(r.ca, proxy.BundleOwner())})
		}
	}
	for i := range virtual.Items {
		target := virtual.Items[i].Spec.Target
		if target.RootShardRef != nil && target.RootShardRef.Name == r.root.Name || target.ShardRef != nil && isShard[target.ShardRef.Name] {
			server := desired.NewVirtualWorkspace(&virtual.Items[i], desired.NewRootShard(r.root))
			out = append(out, trustingServer{server.Server(), desired.MergedCA(r.ca, virtual.Items[i].Name)})
		}
	}
	return out, nil
}

// newShard returns the shard of a member, of which only the name is known.
func (r rekeying) newShard(member operatorv1alpha1.ShardMember) desired.Shard {
	return desired.NewShard(&operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: member.Name}}, r.root)
}

// sortByName sorts what a cache lists in any order, so that the status changes only with the state of the cluster.
func sortByName[T any](items []T, name func(T) string) {
	slices.SortFunc(items, func(a, b T) int { return strings.Compare(name(a), name(b)) })
}

// observeCertificates returns the certificates of the CA that the authority has not issued yet, also those of users, and the kubeconfigs
// that contain such a certificate.
func (r rekeying) observeCertificates(ctx context.Context, authority []byte) ([]string, error) {
	list := &certmanagerv1.CertificateList{}
	if err := r.Cluster.List(ctx, list, client.InNamespace(r.root.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the certificates of %s: %w", r.ca, err)
	}
	var out []string
	sortByName(list.Items, func(certificate certmanagerv1.Certificate) string { return certificate.Name })
	issuer, newest := desired.SigningCA(r.root, r.ca), desired.CAName(r.root, r.ca)
	issued := map[string]bool{}
	for i := range list.Items {
		certificate := &list.Items[i]
		if r.generationOf(certificate.Spec.IssuerRef.Name) == 0 || !isIssuer(certificate) {
			continue
		}
		issued[certificate.Name] = true
		secret, err := r.findSecret(ctx, certificate.Namespace, certificate.Spec.SecretName)
		switch {
		case err != nil:
			return nil, fmt.Errorf("observing Certificate %s: %w", certificate.Name, err)
		case secret == nil && !isOfOperator(certificate):
			continue // nobody has it
		case isOfOperator(certificate) && certificate.Spec.IssuerRef.Name != issuer && certificate.Spec.IssuerRef.Name != newest:
			out = append(out, fmt.Sprintf("Certificate %s is to be issued by Issuer %s%s", certificate.Name, issuer, orDelete))
		case secret == nil || !pki.IsIssuedBy(secret.Data[corev1.TLSCertKey], authority):
			out = append(out, notIssued(certificate, issuer, newest))
		}
	}
	kubeconfigs, err := r.observeKubeconfigs(ctx, authority, issued)
	return append(out, kubeconfigs...), err
}

// findSecret returns a Secret, or nil if it does not exist. A name that the schema admits may be empty.
func (r rekeying) findSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if name == "" {
		return nil, nil
	}
	return apply.Get[corev1.Secret](ctx, r.Cluster, namespace, name)
}

// isIssuer reports whether a Certificate names an Issuer of cert-manager, and not one of another kind with the same name.
func isIssuer(certificate *certmanagerv1.Certificate) bool {
	ref := certificate.Spec.IssuerRef
	return (ref.Kind == "" || ref.Kind == certmanagerv1.IssuerKind) && (ref.Group == "" || ref.Group == certmanagerv1.SchemeGroupVersion.Group)
}

func isOfOperator(certificate *certmanagerv1.Certificate) bool {
	owner := metav1.GetControllerOf(certificate)
	return owner != nil && owner.APIVersion == operatorv1alpha1.SchemeGroupVersion.String()
}

// orDelete is the advice for Certificates of the operator that belong to an earlier configuration: it neither issues nor deletes them.
const orDelete = "; delete it if nothing uses it any more"

// notIssued describes a Certificate. The Issuer newest, which has no suffix, always signs with the newest key.
func notIssued(certificate *certmanagerv1.Certificate, issuer, newest string) string {
	switch name := certificate.Spec.IssuerRef.Name; {
	case isOfOperator(certificate):
		return fmt.Sprintf("Certificate %s is not issued by Issuer %s yet%s", certificate.Name, issuer, orDelete)
	case name != issuer && name != newest:
		return fmt.Sprintf("Certificate %s, which is not the operator's, names Issuer %s of an earlier key: set its issuerRef to %s", certificate.Name, name, newest)
	}
	return fmt.Sprintf("Certificate %s, which is not the operator's, is not issued by Issuer %s yet: renew it with `cmctl renew -n %s %s`",
		certificate.Name, issuer, certificate.Namespace, certificate.Name)
}

// observeKubeconfigs returns the Kubeconfigs with a certificate in issued whose Secrets do not contain one of the authority.
func (r rekeying) observeKubeconfigs(ctx context.Context, authority []byte, issued map[string]bool) ([]string, error) {
	list := &operatorv1alpha1.KubeconfigList{}
	if err := r.Cluster.List(ctx, list, client.InNamespace(r.root.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the Kubeconfigs: %w", err)
	}
	sortByName(list.Items, func(kubeconfig operatorv1alpha1.Kubeconfig) string { return kubeconfig.Name })
	var out []string
	for i := range list.Items {
		kubeconfig := &list.Items[i]
		if !issued[pki.KubeconfigCertificate(kubeconfig)] {
			continue
		}
		secret, err := r.findSecret(ctx, kubeconfig.Namespace, kubeconfig.Spec.SecretRef.Name)
		if err != nil {
			return nil, fmt.Errorf("observing Kubeconfig %s: %w", kubeconfig.Name, err)
		}
		if secret != nil && !isIssued(authority, desired.KubeconfigClientCertificates(secret)) {
			out = append(out, fmt.Sprintf("Kubeconfig %s: Secret %s has a certificate of the previous generation", kubeconfig.Name, secret.Name))
		}
		recorded := kubeconfig.Status.ArgoCDSecret
		if recorded == nil {
			continue
		}
		cluster, err := apply.Get[corev1.Secret](ctx, r.Cluster, recorded.Namespace, recorded.Name)
		if err != nil {
			return nil, err
		}
		if cluster != nil && !isIssued(authority, desired.ArgoCDClientCertificates(cluster)) {
			out = append(out, fmt.Sprintf("Kubeconfig %s: Secret %s/%s of Argo CD has a certificate of the previous generation", kubeconfig.Name, recorded.Namespace, recorded.Name))
		}
	}
	return out, nil
}

func isIssued(authority []byte, certificates [][]byte) bool {
	return !slices.ContainsFunc(certificates, func(file []byte) bool { return !pki.IsIssuedBy(file, authority) })
}

// deleteCA deletes the Certificate of a retired generation, and then its Secret with the key. It returns what is still there.
func (r rekeying) deleteCA(ctx context.Context, name string) ([]string, error) {
	certificate, err := apply.Get[certmanagerv1.Certificate](ctx, r.Cluster, r.root.Namespace, name)
	if err != nil {
		return nil, err
	}
	if certificate != nil && isOfOperator(certificate) {
		return []string{fmt.Sprintf("Certificate %s is being deleted", name)}, r.delete(ctx, certificate)
	}
	secret, err := apply.Get[corev1.Secret](ctx, r.Cluster, r.root.Namespace, name)
	if err != nil || secret == nil || certificate != nil || secret.Annotations[certmanagerv1.CertificateNameKey] != name {
		return nil, err
	}
	return []string{fmt.Sprintf("Secret %s is being deleted", name)}, r.delete(ctx, secret)
}

// delete deletes an object as it was observed.
func (r rekeying) delete(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := r.Cluster.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("deleting a retired certificate authority: %w", err)
}
