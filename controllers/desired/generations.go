package desired

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// RekeyableCAs are the certificate authorities that can get another key while the installation serves: those of which servers only have to
// know which certificates they accept.
func RekeyableCAs() []CA { return []CA{ClientCA, RequestHeaderCA} }

// Rekeyable is all that can get another key: the certificate authorities, and the keys of service account tokens.
func Rekeyable() []CA { return append(RekeyableCAs(), ServiceAccountKeys) }

// TrustAnnotation, on pod templates, has the generations of a CA that the pods trust and have certificates of, or sign tokens with. A change of it replaces the
// pods: a Deployment that has rolled out proves what its servers trust, which a reloaded file does not.
func TrustAnnotation(ca CA) string { return operatorv1alpha1.GroupName + "/" + string(ca) }

// firstGeneration is the generation of the CAs of a new installation. Its objects have no suffix.
const firstGeneration = 1

// generations are the keys of a CA that are in use.
type generations struct {
	trusted []int32 // whose certificates servers accept
	signing int32   // that issues
	pending int32   // that is being made, and that no server waits for; 0 for none
}

// CAState returns the recorded state of a CA, or nil while the RootShard's reconciler has not recorded it.
func CAState(root *operatorv1alpha1.RootShard, ca CA) *operatorv1alpha1.CertificateAuthorityStatus {
	if root.Status.Certificates == nil {
		return nil
	}
	for i := range root.Status.Certificates.CAs {
		if CA(root.Status.Certificates.CAs[i].Name) == ca {
			return &root.Status.Certificates.CAs[i]
		}
	}
	return nil
}

// RekeyOf returns what the spec wants of a CA: the first generation if it says nothing.
func RekeyOf(root *operatorv1alpha1.RootShard, ca CA) operatorv1alpha1.CertificateRekey {
	for _, rekey := range root.Spec.Certificates.Rekey {
		if CA(rekey.CA) == ca {
			return rekey
		}
	}
	return operatorv1alpha1.CertificateRekey{CA: operatorv1alpha1.RekeyableCA(ca), Generation: firstGeneration}
}

// KnowsCA reports whether the generations of a CA are known. They are not after the status of a RootShard with another key than the first
// was lost: until its reconciler has found them, no server or certificate may be changed.
func KnowsCA(root *operatorv1alpha1.RootShard, ca CA) bool {
	return CAState(root, ca) != nil || RekeyOf(root, ca).Generation <= firstGeneration
}

// KnowsCAs is KnowsCA of all CAs of an installation, and of the keys of service account tokens.
func KnowsCAs(root *operatorv1alpha1.RootShard) bool {
	return !slices.ContainsFunc(Rekeyable(), func(ca CA) bool { return !KnowsCA(root, ca) })
}

// generationsOf returns which generations of a CA are in use. A CA that cannot be re-keyed has the first one.
func generationsOf(root *operatorv1alpha1.RootShard, ca CA) generations {
	state := CAState(root, ca)
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

// CAOfGeneration is the name of the Certificate, the Secret and the Issuer of one generation of a CA.
func CAOfGeneration(root *operatorv1alpha1.RootShard, ca CA, generation int32) string {
	return ofGeneration(CAName(root, ca), generation)
}

// ofGeneration is the name of an object of one generation.
func ofGeneration(first string, generation int32) string {
	if generation <= firstGeneration {
		return first
	}
	return first + "-" + strconv.Itoa(int(generation))
}

// PendingCA is the name of the Certificate of a next generation that no server trusts yet because it is not issued, or "".
func PendingCA(root *operatorv1alpha1.RootShard, ca CA) string {
	if pending := generationsOf(root, ca).pending; pending != 0 {
		return CAOfGeneration(root, ca, pending)
	}
	return ""
}

// ExistingCAs are the names of the Certificates of a CA: of two generations while both are trusted. It leaves out PendingCA.
func ExistingCAs(root *operatorv1alpha1.RootShard, ca CA) []string {
	var out []string
	for _, generation := range generationsOf(root, ca).trusted {
		out = append(out, CAOfGeneration(root, ca, generation))
	}
	return out
}

// SigningCA is the name of the Issuer that signs certificates of a CA. Its Certificate and its Secret have that name, too, unless the user
// provides the CA.
func SigningCA(root *operatorv1alpha1.RootShard, ca CA) string {
	return CAOfGeneration(root, ca, generationsOf(root, ca).signing)
}

// hasRekeyed reports whether another generation of a CA than the first is or has been in use.
func hasRekeyed(root *operatorv1alpha1.RootShard, ca CA) bool { return CATrust(root, ca) != "" }

// CATrust describes the generations of a CA in use. It is the annotation of pods, and "" for an installation that has only ever had the
// first, so that its pods remain as they are.
func CATrust(root *operatorv1alpha1.RootShard, ca CA) string {
	in := generationsOf(root, ca)
	if slices.Equal(in.trusted, []int32{firstGeneration}) && in.signing == firstGeneration {
		return ""
	}
	var trusted []string
	for _, generation := range in.trusted {
		trusted = append(trusted, strconv.Itoa(int(generation)))
	}
	return fmt.Sprintf("trusts %s, has %d", strings.Join(trusted, " and "), in.signing)
}

// LiveCATrust is CATrust of the pods of a template.
func LiveCATrust(template *corev1.PodTemplateSpec, ca CA) string {
	return template.Annotations[TrustAnnotation(ca)]
}

// LiveSigner is the generation that the pods of a template have certificates of, or sign with. It is 0 if that is unknown.
func LiveSigner(template *corev1.PodTemplateSpec, ca CA) int32 {
	trust := LiveCATrust(template, ca)
	if trust == "" {
		return firstGeneration
	}
	_, number, _ := strings.Cut(trust, ", has ")
	generation, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return 0
	}
	return int32(generation)
}

// setCATrust sets the annotations on the pods of a server.
func setCATrust(template *corev1.PodTemplateSpec, root *operatorv1alpha1.RootShard, cas []CA) {
	for _, ca := range cas {
		if trust := CATrust(root, ca); trust != "" {
			template.Annotations = mergeMaps(template.Annotations, map[string]string{TrustAnnotation(ca): trust})
		}
	}
}

// trustedCA is the Secret with the certificates of a CA that a server trusts: that of the only one, unless there are several or have been.
func trustedCA(root *operatorv1alpha1.RootShard, ca CA, owner string, refs []*corev1.LocalObjectReference) string {
	if len(refs) > 0 || hasRekeyed(root, ca) {
		return MergedCA(ca, owner)
	}
	return CASecret(root, ca)
}

// trustBundle is the bundle of what a server trusts of a CA: the generations of the installation, and the CAs of the user.
func trustBundle(secret *corev1.Secret, root *operatorv1alpha1.RootShard, ca CA, refs []*corev1.LocalObjectReference) Bundle {
	bundle := Bundle{Secret: secret, CA: CASecret(root, ca), Refs: refs}
	if !hasRekeyed(root, ca) {
		return bundle
	}
	trusted := generationsOf(root, ca).trusted
	bundle.CA, bundle.WithoutChain = CAOfGeneration(root, ca, trusted[0]), true
	for _, generation := range trusted[1:] {
		bundle.Others = append(bundle.Others, CAOfGeneration(root, ca, generation))
	}
	return bundle
}
