package dynamic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func clientKey(name string) client.ObjectKey { return client.ObjectKey{Name: name} }

func signingRequest(t *testing.T, name, signer, organization string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "someone", Organization: []string{organization}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: signer,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}
}

// testCertificates checks that approval requires the permission for the signer, in the workspace of the request.
func testCertificates(t *testing.T, shard *shardtesting.Shard) {
	a, clusterA := createWorkspace(t, shard, "certificates-a")
	b, clusterB := createWorkspace(t, shard, "certificates-b")
	writes := rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests", "certificatesigningrequests/approval"}, Verbs: []string{"*"}}
	approves := rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{"example.com/signer"}, Verbs: []string{"approve"}}
	mayApprove := newRestrictedClient(t, shard, a, clusterA, writes, approves)
	mayNot := newRestrictedClient(t, shard, b, clusterB, writes)

	approve := func(name string) *certificatesv1.CertificateSigningRequest {
		request := signingRequest(t, name, "example.com/signer", "team")
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Tested"}}
		return request
	}
	shardtesting.Eventually(t, "the requests to be created", func(ctx context.Context) error {
		if _, err := mayApprove.CertificatesV1().CertificateSigningRequests().Create(ctx, signingRequest(t, "x", "example.com/signer", "team"), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		_, err := mayNot.CertificatesV1().CertificateSigningRequests().Create(ctx, signingRequest(t, "x", "example.com/signer", "team"), metav1.CreateOptions{})
		return err
	})
	approved, err := mayApprove.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), "x", approve("x"), metav1.UpdateOptions{})
	if err != nil || len(approved.Status.Conditions) != 1 || approved.Spec.Username != "user" {
		t.Errorf("got %v, %v", approved, err)
	}
	if _, err := mayNot.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), "x", approve("x"), metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
	masters := signingRequest(t, "masters", "kubernetes.io/kube-apiserver-client", "system:masters")
	if _, err := a.CertificatesV1().CertificateSigningRequests().Create(t.Context(), masters, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a request for system:masters: %v", err)
	}
}
