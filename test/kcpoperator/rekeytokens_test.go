package kcpoperator

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
)

// tokenKeys are the public keys of service account tokens that a server has read when it started.
type tokenKeys struct {
	signs   string   // "" for a server that signs nothing
	accepts []string // of its own shard and of others
}

// giveSecondTokenKeys gives all shards their second key of service account tokens: the key of one is late, the status is lost, and tokens of the
// first keys are in use until the user confirms that they are not.
func (r *rekeying) giveSecondTokenKeys() {
	r.t.Helper()
	const ca, late = desired.ServiceAccountKeys, "alpha-service-account-2"
	r.until("all servers accept the tokens of all shards", ca, func(*operatorv1alpha1.CertificateAuthorityStatus) bool {
		return r.pods.checkTokens(nil) == nil
	})
	r.tokens = map[string]string{"a token of the root shard": r.pods.running["root-kcp"].tokens.signs, "a token of alpha": r.pods.running["alpha-shard-kcp"].tokens.signs}
	previous := slices.Collect(maps.Values(r.tokens))
	r.certManager.refuses = late
	r.setRekey(ca, `{"ca": %q, "generation": 2}`)
	r.until("the re-keying waits for the key of a shard", ca, func(state *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return state.Phase == operatorv1alpha1.CertificateAuthorityTrustBoth && len(state.BlockedBy) == 1 && strings.Contains(state.BlockedBy[0], "see Certificate "+late)
	})
	rounds := 3 // after which each reconciler has seen the record
	r.until("all reconcilers have run", ca, func(*operatorv1alpha1.CertificateAuthorityStatus) bool { rounds--; return rounds < 0 })
	for _, name := range []string{"root-kcp", "alpha-shard-kcp", "front-front-proxy"} {
		if trust := desired.LiveCATrust(&r.deployment(name).Spec.Template, ca); trust != "" {
			r.t.Errorf("the pods of %s say %q, and a shard has no second key", name, trust)
		}
	}
	if ready := meta.FindStatusCondition(r.root().Status.Conditions, operatorv1alpha1.ConditionCertificatesReady); ready == nil || ready.Status != metav1.ConditionTrue {
		r.t.Errorf("the root shard waits for the key of another: %+v", ready)
	}
	r.certManager.refuses = ""
	r.until("shards are to sign with the next keys", ca, func(state *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return state.Phase == operatorv1alpha1.CertificateAuthorityIssue
	})
	r.loseStatus() // perhaps before any, and perhaps after some
	r.awaitConfirmation(ca)
	r.tokens = map[string]string{} // clients have renewed theirs
	r.setRekey(ca, `{"ca": %q, "generation": 2, "retireGeneration": 1}`)
	state := r.until("the re-keying has ended", ca, func(state *operatorv1alpha1.CertificateAuthorityStatus) bool {
		return state.Phase == operatorv1alpha1.CertificateAuthorityStable && state.Generation == 2
	})
	if state.SecretName != "root-service-account-2" || state.NextFingerprint != "" || state.Fingerprint == "" || state.NotAfter != nil || len(state.BlockedBy) > 0 {
		r.t.Errorf("got %+v", state)
	}
	r.checkTokenKeysEnd(previous)
}

// checkTokenKeysEnd checks that nothing of the previous generation is left.
func (r *rekeying) checkTokenKeysEnd(previous []string) {
	r.t.Helper()
	for name, files := range r.pods.running {
		for _, key := range previous {
			if files.tokens.signs == key || slices.Contains(files.tokens.accepts, key) {
				r.t.Errorf("%s accepts tokens of the previous key", name)
			}
		}
	}
	for _, name := range []string{"root-service-account", "alpha-service-account"} {
		if secret := r.secret(name); secret.UID != "" {
			r.t.Errorf("Secret %s remains", name)
		}
		err := r.Get(r.t.Context(), client.ObjectKey{Namespace: rekeyNamespace, Name: name}, &certmanagerv1.Certificate{})
		if !apierrors.IsNotFound(err) {
			r.t.Errorf("Certificate %s remains: %v", name, err)
		}
	}
	for name, files := range r.pods.running {
		accepts := name == "root-kcp" || name == "alpha-shard-kcp" || name == "front-front-proxy"
		want := map[bool]string{true: "trusts 2, has 2"}[accepts]
		if trust := desired.LiveCATrust(&r.deployment(name).Spec.Template, desired.ServiceAccountKeys); trust != want || accepts != (len(files.tokens.accepts) > 0) {
			r.t.Errorf("the pods of %s say %q and accept tokens of %d keys", name, trust, len(files.tokens.accepts))
		}
	}
}

// readTokenKeys returns the keys of the files that the flags of a server name.
func (p pods) readTokenKeys(ctx context.Context, pod *corev1.PodSpec) (tokenKeys, error) {
	var out tokenKeys
	for _, arg := range pod.Containers[0].Args {
		flag, file, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		signs := flag == "service-account-private-key-file"
		if !signs && flag != "service-account-key-file" && flag != "remote-service-account-key-file" {
			continue
		}
		key, err := p.readTokenKey(ctx, pod, path.Dir(file))
		switch {
		case err != nil:
			return tokenKeys{}, fmt.Errorf("%s: %w", arg, err)
		case signs:
			out.signs = key
		default:
			out.accepts = append(out.accepts, key)
		}
	}
	return out, nil
}

// readTokenKey returns the public key in a directory of a pod. A pod whose Secret does not exist does not start.
func (p pods) readTokenKey(ctx context.Context, pod *corev1.PodSpec, dir string) (string, error) {
	for _, mount := range pod.Containers[0].VolumeMounts {
		for _, volume := range pod.Volumes {
			if mount.MountPath != dir || mount.Name != volume.Name {
				continue
			}
			secret := &corev1.Secret{}
			if err := p.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: volume.Secret.SecretName}, secret); err != nil {
				return "", err
			}
			certificate, err := parseCertificate(secret.Data[corev1.TLSCertKey])
			if err != nil {
				return "", err
			}
			return string(certificate.RawSubjectPublicKeyInfo), nil
		}
	}
	return "", fmt.Errorf("nothing is mounted at %s", dir)
}

// checkTokens returns an error if a server that accepts tokens of service accounts refuses those that a running shard signs, or others in use.
func (p pods) checkTokens(others map[string]string) error {
	used := maps.Clone(others)
	if used == nil {
		used = map[string]string{}
	}
	for deployment, files := range p.running {
		if files.tokens.signs != "" {
			used["a token that "+deployment+" signs"] = files.tokens.signs
		}
	}
	for deployment, files := range p.running {
		for name, key := range used {
			if len(files.tokens.accepts) > 0 && !slices.Contains(files.tokens.accepts, key) {
				return fmt.Errorf("%s refuses %s", deployment, name)
			}
		}
	}
	return nil
}
