package desired

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// ClientCATrustAnnotation, on pod templates, has the generations of the client CA that the pods trust and have certificates of. A change of
// it replaces the pods: a Deployment that has rolled out proves what its servers trust, which a reloaded file does not.
const ClientCATrustAnnotation = "operator.kcp.io/client-ca"

// firstGeneration is the generation of the CAs of a new installation. Its objects have no suffix.
const firstGeneration = 1

// generations are the keys of a CA that are in use.
type generations struct {
	trusted []int32 // whose certificates servers accept
	signing int32   // that issues
	pending int32   // that is being made, and that no server waits for; 0 for none
}

// CAState returns the recorded state of the client CA, or nil while the RootShard's reconciler has not recorded it.
func CAState(root *operatorv1alpha1.RootShard) *operatorv1alpha1.CertificateAuthorityStatus {
	if root.Status.Certificates == nil {
		return nil
	}
	for i := range root.Status.Certificates.CAs {
		if root.Status.Certificates.CAs[i].Name == operatorv1alpha1.ClientCA {
			return &root.Status.Certificates.CAs[i]
		}
	}
	return nil
}

// RekeyOf returns what the spec wants of the client CA: the first generation if it says nothing.
func RekeyOf(root *operatorv1alpha1.RootShard) operatorv1alpha1.CertificateRekey {
	for _, rekey := range root.Spec.Certificates.Rekey {
		if rekey.CA == operatorv1alpha1.ClientCA {
			return rekey
		}
	}
	return operatorv1alpha1.CertificateRekey{CA: operatorv1alpha1.ClientCA, Generation: firstGeneration}
}

// KnowsCAs reports whether the generations of the CAs of an installation are known. They are not after the status of a RootShard with
// another key than the first was lost: until its reconciler has found them, no server or certificate may be changed.
func KnowsCAs(root *operatorv1alpha1.RootShard) bool {
	return CAState(root) != nil || RekeyOf(root).Generation <= firstGeneration
}

// clientCAGenerations returns which generations of the client CA are in use.
func clientCAGenerations(root *operatorv1alpha1.RootShard) generations {
	state := CAState(root)
	if state == nil {
		return generations{trusted: []int32{firstGeneration}, signing: firstGeneration}
	}
	both := []int32{state.Generation, state.NextGeneration}
	switch state.Phase {
	case operatorv1alpha1.CertificateAuthorityTrustBoth:
		if state.NextFingerprint == "" { // servers do not wait for a certificate that may never be issued
			return generations{trusted: both[:1], signing: state.Generation, pending: state.NextGeneration}
		}
		return generations{trusted: both, signing: state.Generation}
	case operatorv1alpha1.CertificateAuthorityIssue:
		return generations{trusted: both, signing: state.NextGeneration}
	case operatorv1alpha1.CertificateAuthorityRetire:
		return generations{trusted: both[1:], signing: state.NextGeneration}
	}
	return generations{trusted: both[:1], signing: state.Generation}
}

// CAOfGeneration is the name of the Certificate, the Secret and the Issuer of one generation of the client CA.
func CAOfGeneration(root *operatorv1alpha1.RootShard, generation int32) string {
	name := CAName(root, ClientCA)
	if generation <= firstGeneration {
		return name
	}
	return name + "-" + strconv.Itoa(int(generation))
}

// PendingCA is the name of the Certificate of a client CA that no server trusts yet because it is not issued, or "".
func PendingCA(root *operatorv1alpha1.RootShard) string {
	if pending := clientCAGenerations(root).pending; pending != 0 {
		return CAOfGeneration(root, pending)
	}
	return ""
}

// ExistingCAs are the names of the Certificates of a CA: of two generations while both are trusted. It leaves out PendingCA.
func ExistingCAs(root *operatorv1alpha1.RootShard, ca CA) []string {
	if ca != ClientCA {
		return []string{CAName(root, ca)}
	}
	var out []string
	for _, generation := range clientCAGenerations(root).trusted {
		out = append(out, CAOfGeneration(root, generation))
	}
	return out
}

// SigningCA is the name of the Issuer that signs certificates of a CA. Its Certificate and its Secret have that name, too, unless the user
// provides the CA.
func SigningCA(root *operatorv1alpha1.RootShard, ca CA) string {
	if ca != ClientCA {
		return CAName(root, ca)
	}
	return CAOfGeneration(root, clientCAGenerations(root).signing)
}

// hasRekeyed reports whether another client CA than the first is or has been in use.
func hasRekeyed(root *operatorv1alpha1.RootShard) bool { return ClientCATrust(root) != "" }

// ClientCATrust describes the generations of the client CA in use. It is the annotation of pods, and "" for an installation that has only
// ever had the first, so that its pods remain as they are.
func ClientCATrust(root *operatorv1alpha1.RootShard) string {
	in := clientCAGenerations(root)
	if slices.Equal(in.trusted, []int32{firstGeneration}) && in.signing == firstGeneration {
		return ""
	}
	var trusted []string
	for _, generation := range in.trusted {
		trusted = append(trusted, strconv.Itoa(int(generation)))
	}
	return fmt.Sprintf("trusts %s, has %d", strings.Join(trusted, " and "), in.signing)
}

// LiveClientCATrust is ClientCATrust of the pods of a template.
func LiveClientCATrust(template *corev1.PodTemplateSpec) string {
	return template.Annotations[ClientCATrustAnnotation]
}

// setClientCATrust sets the annotation on the pods of a server.
func setClientCATrust(template *corev1.PodTemplateSpec, root *operatorv1alpha1.RootShard) {
	if trust := ClientCATrust(root); trust != "" {
		template.Annotations = mergeMaps(template.Annotations, map[string]string{ClientCATrustAnnotation: trust})
	}
}

// clientCABundle is the bundle of the client CAs that a server trusts: those of the installation, and those of the user.
func clientCABundle(secret *corev1.Secret, root *operatorv1alpha1.RootShard, refs []*corev1.LocalObjectReference) Bundle {
	bundle := Bundle{Secret: secret, CA: CASecret(root, ClientCA), Refs: refs}
	if !hasRekeyed(root) {
		return bundle
	}
	trusted := clientCAGenerations(root).trusted
	bundle.CA, bundle.WithoutChain = CAOfGeneration(root, trusted[0]), true
	for _, generation := range trusted[1:] {
		bundle.Others = append(bundle.Others, CAOfGeneration(root, generation))
	}
	return bundle
}
