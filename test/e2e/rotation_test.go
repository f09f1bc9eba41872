//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testCertificateRenewal has cert-manager renew certificates of a shard, as it does in the last third of
// their validity. The shard serves the new one, and no pod is replaced.
func (in *installation) testCertificateRenewal(t *testing.T) {
	pod := in.onePod(t, client.MatchingLabels{"app.kubernetes.io/component": "shard", "app.kubernetes.io/instance": "alpha"})
	address := in.podAddress(t, pod, 6443)
	before, err := servedCertificateSerial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	pods := in.podUIDs(t)
	for _, certificate := range []string{"alpha-server", "alpha-client", "root-proxy-requestheader"} {
		in.renew(t, client.ObjectKey{Namespace: in.namespace, Name: certificate})
	}
	// The kubelet writes the new files within a minute or two, and the server reloads them every minute.
	eventually(t, 5*time.Minute, "the renewed certificate to be served", func(ctx context.Context) error {
		after, err := servedCertificateSerial(ctx, address)
		if err == nil && after == before {
			err = errors.New("the old certificate is served")
		}
		return err
	})
	eventually(t, 4*time.Minute, "readiness", in.allReady)
	for uid, name := range in.podUIDs(t) {
		if _, there := pods[uid]; !there {
			t.Errorf("pod %s is new", name)
		}
	}
	for shard, consumer := range in.consumers {
		if err := get(t.Context(), in.admin, "/clusters/"+consumer.path+"/api/v1/namespaces"); err != nil {
			t.Errorf("a workspace on %s: %v", shard, err)
		}
	}
}

// renew requests a new certificate of cert-manager, as its command line does.
func (in *installation) renew(t *testing.T, key client.ObjectKey) {
	t.Helper()
	eventually(t, 30*time.Second, "the renewal of certificate "+key.Name, func(ctx context.Context) error {
		certificate := &unstructured.Unstructured{}
		certificate.SetAPIVersion("cert-manager.io/v1")
		certificate.SetKind("Certificate")
		if err := in.host.Get(ctx, key, certificate); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(certificate.Object, "status", "conditions")
		conditions = append(conditions, map[string]any{
			"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "triggered by a test",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
		if err := unstructured.SetNestedSlice(certificate.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		return in.host.Status().Update(ctx, certificate)
	})
}

// servedCertificateSerial returns the serial number of the certificate that a server presents.
func servedCertificateSerial(ctx context.Context, address string) (string, error) {
	// Only the identity of the certificate matters here, not its signature.
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("connecting to %s: %w", address, err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// podUIDs returns the pods of the installation.
func (in *installation) podUIDs(t *testing.T) map[types.UID]string {
	t.Helper()
	pods := &corev1.PodList{}
	if err := in.host.List(t.Context(), pods, client.InNamespace(in.namespace)); err != nil {
		t.Fatal(err)
	}
	out := map[types.UID]string{}
	for i := range pods.Items {
		out[pods.Items[i].UID] = pods.Items[i].Name
	}
	return out
}
