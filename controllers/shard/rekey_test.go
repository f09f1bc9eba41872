package shard

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
)

func inKCP(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "kcp"} }

// rekeyed returns RootShard root, of which a CA has a recorded state.
func rekeyed(ca desired.CA, phase operatorv1alpha1.CertificateAuthorityPhase, generation, next, wanted int32) *operatorv1alpha1.RootShard {
	root := newRootShard()
	root.Spec.Certificates.Rekey = []operatorv1alpha1.CertificateRekey{{CA: operatorv1alpha1.RekeyableCA(ca), Generation: wanted}}
	if phase != "" {
		root.Status.Certificates = &operatorv1alpha1.CertificatesStatus{CAs: []operatorv1alpha1.CertificateAuthorityStatus{{
			Name: operatorv1alpha1.RekeyableCA(ca), Phase: phase, Generation: generation, NextGeneration: next,
		}}}
	}
	return root
}

// newCA returns the Secret of a certificate authority.
func newCA(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := &corev1.Secret{ObjectMeta: inKCP(name), Data: map[string][]byte{corev1.TLSCertKey: file}}
	secret.Annotations = map[string]string{certmanagerv1.CertificateNameKey: name}
	return secret
}

// newUserSecret returns a Secret that cert-manager has not made.
func newUserSecret(name string) *corev1.Secret { return &corev1.Secret{ObjectMeta: inKCP(name)} }

func newCertificate(name, issuer string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{ObjectMeta: inKCP(name), Spec: certmanagerv1.CertificateSpec{SecretName: name, IssuerRef: cmmeta.IssuerReference{Name: issuer}}}
}

// leftOver returns a Certificate of the operator that no configuration needs.
func leftOver(name, issuer string) *certmanagerv1.Certificate {
	out := newCertificate(name, issuer)
	out.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: operatorv1alpha1.SchemeGroupVersion.String(), Kind: "RootShard", Name: "root", UID: "root", Controller: ptr.To(true),
	}}
	return out
}

// intercept makes the client fail to read a Secret, and list in the other order each second time, as caches list in any order.
func (e *env) intercept(unreadable string) {
	reads := 0
	e.client = interceptor.NewClient(e.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*corev1.Secret); ok && key.Name == unreadable {
				return errors.New("no connection")
			}
			return c.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			err := c.List(ctx, list, options...)
			items, extractErr := meta.ExtractList(list)
			if reads++; err != nil || extractErr != nil || reads/10%2 == 0 {
				return errors.Join(err, extractErr)
			}
			slices.Reverse(items)
			return meta.SetList(list, items)
		},
	})
}

func blockedBy(root *operatorv1alpha1.RootShard, ca desired.CA) []string {
	return desired.CAState(root, ca).BlockedBy
}

// TestBlockers: what a re-keying waits for is a list that changes only with the state of the cluster.
func TestBlockers(t *testing.T) {
	objects := []client.Object{rekeyed(desired.ClientCA, "Issue", 1, 2, 2), newCA(t, "root-client-ca"), newCA(t, "root-client-ca-2")}
	for _, name := range []string{"a", "b", "c"} {
		front := &operatorv1alpha1.FrontProxy{ObjectMeta: inKCP("front-" + name)}
		front.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
		proxy := desired.NewFrontProxy(front, newRootShard())
		mine := newCertificate("mine-"+name, "root-client-ca")
		objects = append(objects, front, mine, newCA(t, mine.Name),
			&appsv1.Deployment{ObjectMeta: inKCP(proxy.Server()), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}})
	}
	s := newEnv(t, objects...)
	s.reconcileRoot("root") // applies the operator's Certificates
	seen := map[string]bool{}
	for offset := range 12 {
		s.intercept("")
		for range offset { // the lists of one reconcile begin to be reversed at another place
			if err := s.client.List(t.Context(), &corev1.ConfigMapList{}); err != nil {
				t.Fatal(err)
			}
		}
		blocked := blockedBy(s.reconcileRoot("root"), desired.ClientCA)
		if text := strings.Join(blocked, "\n"); !strings.Contains(text, "front-c") || !strings.Contains(text, "mine-c") {
			t.Fatalf("blocked by %q", blocked)
		}
		seen[strings.Join(blocked, "\n")] = true
	}
	if len(seen) != 1 {
		t.Errorf("the list changes: %v", seen)
	}
}

// TestWrongObjects: objects that users have made, or that are left, stop the re-keying and not the installation.
func TestWrongObjects(t *testing.T) {
	kubeconfig := &operatorv1alpha1.Kubeconfig{ObjectMeta: inKCP("admin")}
	nameless := newCertificate("nameless", "root-client-ca")
	nameless.Spec.SecretName = ""
	front := &operatorv1alpha1.FrontProxy{ObjectMeta: inKCP("root")}
	front.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	issue, issueOfProxies := rekeyed(desired.ClientCA, "Issue", 1, 2, 2), rekeyed(desired.RequestHeaderCA, "Issue", 1, 2, 2)
	for name, tc := range map[string]struct {
		root       *operatorv1alpha1.RootShard
		objects    []client.Object
		unreadable string
		want       string // in a blocker; "" for none but the confirmation
	}{
		"a Kubeconfig without a Secret":           {issue, []client.Object{kubeconfig, newCertificate("kubeconfig-cert-admin", "root-client-ca")}, "", ""},
		"a Certificate without a Secret":          {issue, []client.Object{nameless}, "", ""},
		"a Secret that cannot be read":            {issue, []client.Object{newCertificate("mine", "root-client-ca")}, "mine", "the re-keying cannot be observed: observing Certificate mine: "},
		"a left-over Certificate":                 {issue, []client.Object{leftOver("old", "root-client-ca-9"), newCA(t, "old")}, "", "Certificate old is to be issued by Issuer root-client-ca-2; delete it if nothing uses it any more"},
		"a left-over one of the Issuer of users":  {issue, []client.Object{leftOver("old", "root-client-ca"), newCA(t, "old")}, "", "Certificate old is not issued by Issuer root-client-ca-2 yet; delete it if nothing uses it any more"},
		"a user's one of an Issuer with a number": {issue, []client.Object{newCertificate("mine", "root-client-ca-9"), newCA(t, "mine")}, "", "set its issuerRef to root-client-ca"},
		"two servers with the same bundle":        {rekeyed(desired.ClientCA, "Stable", 1, 0, 2), []client.Object{front}, "", "would have the same Secret root-merged-client-ca"},
		"two proxies with the same bundle":        {rekeyed(desired.RequestHeaderCA, "Stable", 1, 0, 2), []client.Object{front}, "", "would have the same Secret root-merged-requestheader-client-ca"},
		"only certificates of the client CA":      {issueOfProxies, []client.Object{newCertificate("mine", "root-client-ca"), newCA(t, "mine")}, "", ""},
		"a proxy of the user":                     {issueOfProxies, []client.Object{newCertificate("mine", "root-requestheader-client-ca"), newCA(t, "mine")}, "", "is not issued by Issuer root-requestheader-client-ca-2 yet: renew it with `cmctl renew -n kcp mine`"},
	} {
		t.Run(name, func(t *testing.T) {
			ca := desired.CA(tc.root.Status.Certificates.CAs[0].Name)
			s := newEnv(t, append(tc.objects, tc.root.DeepCopy(), newCA(t, desired.CAName(tc.root, ca)), newCA(t, desired.CAName(tc.root, ca)+"-2"))...)
			s.intercept(tc.unreadable)
			root := s.reconcileRoot("root")
			blocked := blockedBy(root, ca)
			if tc.want == "" {
				if len(blocked) != 1 || !strings.Contains(blocked[0], "set retireGeneration") {
					t.Errorf("blocked by %q", blocked)
				}
			} else if len(blocked) == 0 || !strings.Contains(blocked[0], tc.want) {
				t.Errorf("blocked by %q, want %q", blocked, tc.want)
			}
			if state := desired.CAState(root, ca); state.Phase != tc.root.Status.Certificates.CAs[0].Phase {
				t.Errorf("the phase is %s", state.Phase)
			}
			shown := meta.FindStatusCondition(root.Status.Conditions, operatorv1alpha1.ConditionCertificatesRekeyed)
			if shown == nil || shown.Status != metav1.ConditionFalse || !strings.Contains(shown.Message, tc.want) {
				t.Errorf("the condition is %+v", shown)
			}
			if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: "kcp", Name: "root-etcd-record"}, &corev1.ConfigMap{}); err != nil {
				t.Errorf("the reconcile has ended before the etcd: %v", err)
			}
		})
	}
}

// TestLostRecord: nothing is changed before the keys of an installation are known.
func TestLostRecord(t *testing.T) {
	for _, ca := range desired.Rekeyable() {
		t.Run(string(ca), func(t *testing.T) { testLostRecord(t, ca) })
	}
}

func testLostRecord(t *testing.T, ca desired.CA) {
	first := "root-" + string(ca)
	for name, tc := range map[string]struct {
		wanted   int32 // 0: the spec says nothing
		existing []string
		message  string // of CertificatesReady; "" if the reconcile goes on
		phase    operatorv1alpha1.CertificateAuthorityPhase
	}{
		"the first key":                     {0, []string{first}, "", "Stable"},
		"a second key":                      {2, []string{first + "-2"}, "nothing is changed before that is recorded", "Stable"},
		"the entry was lost, too":           {0, []string{first + "-2"}, "nothing is changed before that is recorded", "Stable"},
		"two keys":                          {3, []string{first, first + "-2"}, "nothing is changed before that is recorded", "TrustBoth"},
		"a Secret of the user":              {0, []string{first, "user's " + first + "-2"}, "", "Stable"},
		"the first key was saved by hand":   {2, []string{"user's " + first}, "nothing is changed before that is recorded", "TrustBoth"},
		"three keys, of which none is safe": {3, []string{first, first + "-2", first + "-3"}, "there are keys of the generations [1 2 3] of " + string(ca), ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := rekeyed(ca, "", 0, 0, tc.wanted)
			if tc.wanted == 0 {
				root.Spec.Certificates.Rekey = nil
			}
			objects := []client.Object{root}
			for _, name := range tc.existing {
				if byHand, ok := strings.CutPrefix(name, "user's "); ok {
					objects = append(objects, newUserSecret(byHand))
				} else {
					objects = append(objects, newCA(t, name))
				}
			}
			s := newEnv(t, objects...)
			root = s.reconcileRoot("root")
			var phase operatorv1alpha1.CertificateAuthorityPhase
			if state := desired.CAState(root, ca); state != nil {
				phase = state.Phase
				if (state.NextFingerprint == "") != (name != "two keys") {
					t.Errorf("servers would trust what the record says: %+v", state)
				}
			}
			shown := meta.FindStatusCondition(root.Status.Conditions, operatorv1alpha1.ConditionCertificatesReady)
			if phase != tc.phase || shown == nil || !strings.Contains(shown.Message, tc.message) {
				t.Errorf("phase %q, condition %+v", phase, shown)
			}
			var certificates certmanagerv1.CertificateList
			if err := s.client.List(t.Context(), &certificates); err != nil || (len(certificates.Items) == 0) != (tc.message != "") {
				t.Errorf("%d Certificates were applied: %v", len(certificates.Items), err)
			}
		})
	}
}

// TestSeveralCAs: each certificate authority is re-keyed by itself, and the condition tells of all that are in progress.
func TestSeveralCAs(t *testing.T) {
	root := rekeyed(desired.ClientCA, "Issue", 1, 2, 2)
	root.Spec.Certificates.Rekey = append(root.Spec.Certificates.Rekey, operatorv1alpha1.CertificateRekey{CA: operatorv1alpha1.RequestHeaderCA, Generation: 3})
	s := newEnv(t, root, newCA(t, "root-client-ca"), newCA(t, "root-client-ca-2"), newCA(t, "root-requestheader-client-ca-2"))
	root = s.reconcileRoot("root")
	if state := desired.CAState(root, desired.RequestHeaderCA); state == nil || state.Phase != "TrustBoth" || state.Generation != 2 || state.NextGeneration != 3 {
		t.Errorf("the record that did not exist is %+v", state)
	}
	if state := desired.CAState(root, desired.ClientCA); state == nil || state.Phase != "Issue" || state.Generation != 1 || state.NextGeneration != 2 {
		t.Errorf("the record of the other is %+v", state)
	}
	root = s.reconcileRoot("root")
	shown := meta.FindStatusCondition(root.Status.Conditions, operatorv1alpha1.ConditionCertificatesRekeyed)
	if shown == nil || shown.Reason != operatorv1alpha1.ReasonIssue || !strings.Contains(shown.Message, "generation 2 of client-ca; 1 is trusted, too") ||
		!strings.Contains(shown.Message, "servers learn to trust generation 3 of requestheader-client-ca beside 2") {
		t.Errorf("the condition is %+v", shown)
	}
}
