package kcpoperator

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/desired"
)

// pods are the pods of the Deployments of a namespace, with the certificates in their files.
type pods struct {
	client.Client
	namespace string
	running   map[string]files // by Deployment
}

// files are what the pods of a Deployment have read.
type files struct {
	generation int64                            // of the Deployment
	volumes    []corev1.Volume                  // with Secrets
	trusts     map[desired.CA][]byte            // CAs whose certificates are accepted
	has        map[desired.CA]map[string][]byte // certificates by their CA and the name of the Secret
	tokens     tokenKeys                        // read at the start only
}

// rollOne replaces the pods of at most one Deployment, and reports whether it did.
func (p pods) rollOne(ctx context.Context) (bool, error) {
	list := &appsv1.DeploymentList{}
	if err := p.List(ctx, list, client.InNamespace(p.namespace)); err != nil {
		return false, err
	}
	for i := range list.Items {
		d := &list.Items[i]
		if p.running[d.Name].generation == d.Generation {
			continue
		}
		next, err := p.read(ctx, d.Spec.Template.Spec.Volumes)
		if err != nil {
			return false, err
		}
		next.generation = d.Generation
		if next.tokens, err = p.readTokenKeys(ctx, &d.Spec.Template.Spec); err != nil {
			return false, err
		}
		p.running[d.Name] = next
		replicas := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
		return true, p.Status().Update(ctx, d, client.FieldOwner("kube-controller-manager"))
	}
	return false, nil
}

// refresh updates the files of running pods, as kubelets do.
func (p pods) refresh(ctx context.Context) error {
	for name, running := range p.running {
		next, err := p.read(ctx, running.volumes)
		if err != nil {
			return err
		}
		next.generation, next.tokens = running.generation, running.tokens
		p.running[name] = next
	}
	return nil
}

func (p pods) read(ctx context.Context, volumes []corev1.Volume) (files, error) {
	out := files{volumes: volumes, trusts: map[desired.CA][]byte{}, has: map[desired.CA]map[string][]byte{}}
	for _, volume := range volumes {
		if volume.Secret == nil {
			continue
		}
		secret := &corev1.Secret{}
		if err := p.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: volume.Secret.SecretName}, secret); apierrors.IsNotFound(err) {
			continue // the files of a running pod remain as they are; that Secrets of the operator are not deleted is checked by the trust
		} else if err != nil {
			return out, err
		}
		file := secret.Data[corev1.TLSCertKey]
		for _, ca := range desired.RekeyableCAs() {
			switch {
			case isTrustVolume(volume.Name, ca):
				out.trusts[ca] = file
			case volume.Secret.Items == nil && isOfCA(file, ca):
				if out.has[ca] == nil {
					out.has[ca] = map[string][]byte{}
				}
				out.has[ca][secret.Name] = file
			}
		}
	}
	return out, nil
}

// isTrustVolume reports whether a volume has what servers trust of a CA.
func isTrustVolume(name string, ca desired.CA) bool {
	return name == string(ca) || name == "root-"+string(ca) || strings.HasSuffix(name, "-merged-"+string(ca))
}

// isOfCA reports whether a file begins with a certificate of any generation of a CA.
func isOfCA(file []byte, ca desired.CA) bool {
	certificate, err := parseCertificate(file)
	return err == nil && strings.HasPrefix(certificate.Issuer.CommonName, "root-"+string(ca))
}

// check returns an error if a server refuses a certificate of a CA in use.
func (p pods) check(ca desired.CA, others map[string][]byte) error {
	used := map[string][]byte{}
	for name, file := range others {
		used[name] = file
	}
	for deployment, files := range p.running {
		for name, file := range files.has[ca] {
			used["Secret "+name+" in the pods of "+deployment] = file
		}
	}
	for deployment, files := range p.running {
		for name, file := range used {
			if err := verifyClient(file, files.trusts[ca]); err != nil {
				return fmt.Errorf("%s refuses %s: %w", deployment, name, err)
			}
		}
	}
	return nil
}

// verifyClient verifies a client certificate as servers of Kubernetes do.
func verifyClient(chain, trusted []byte) error {
	certificate, err := parseCertificate(chain)
	if err != nil {
		return err
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted) {
		return fmt.Errorf("nothing is trusted: %q", trusted)
	}
	if _, rest, found := bytes.Cut(chain, []byte("-----END CERTIFICATE-----\n")); found {
		intermediates.AppendCertsFromPEM(rest)
	}
	_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}
