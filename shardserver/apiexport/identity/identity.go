// Package identity creates, reads and verifies the identities of APIExports and cached resources: 32 random bytes,
// base64-encoded in a Secret, whose SHA-256 is the public identity hash. Objects are stored under the hash, so that the
// Secret proves the ownership of them.
package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// size is the number of random bytes of an identity.
const size = 32

// Generate returns a new random identity.
func Generate() string {
	key := make([]byte, size)
	_, _ = rand.Read(key) // never fails on supported systems
	return base64.RawURLEncoding.EncodeToString(key)
}

// SecretStore reads and creates identity Secrets in the logical cluster of the context.
type SecretStore struct {
	secrets *storage.Reader[*core.Secret]
	client  client.Client
}

// NewSecretStore returns a SecretStore that reads from the registry and writes with the client.
func NewSecretStore(registry *storage.Registry, client client.Client) *SecretStore {
	return &SecretStore{secrets: storage.NewReader[*core.Secret](registry, schema.GroupResource{Resource: "secrets"}), client: client}
}

// Read returns the identity in a Secret. problem is a message for the owner of the Secret if it does not exist.
func (s *SecretStore) Read(ctx context.Context, reference *corev1.SecretReference) (value []byte, problem string, err error) {
	secret, err := s.secrets.Get(ctx, reference.Namespace, reference.Name)
	if apierrors.IsNotFound(err) { // the watch cache may lag behind
		secret, err = s.secrets.GetLatest(ctx, reference.Namespace, reference.Name)
	}
	if apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("secret %s/%s was not found; create it with the identity in key %q", reference.Namespace, reference.Name, apisv1alpha2.SecretKeyAPIExportIdentity), nil
	}
	if err != nil {
		return nil, "", err
	}
	return secret.Data[apisv1alpha2.SecretKeyAPIExportIdentity], "", nil
}

// Ensure creates a Secret with a new identity, and its namespace, unless it exists.
func (s *SecretStore) Ensure(ctx context.Context, reference *corev1.SecretReference) error {
	_, err := s.secrets.GetLatest(ctx, reference.Namespace, reference.Name)
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: reference.Namespace}}
	if err := s.client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", reference.Namespace, err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace, Name: reference.Name},
		Data:       map[string][]byte{apisv1alpha2.SecretKeyAPIExportIdentity: []byte(Generate())},
	}
	if err := s.client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating secret %s/%s: %w", reference.Namespace, reference.Name, err)
	}
	return nil
}

// Verify returns the identity hash of an object, given its known hash or "" and the result of Read. A known hash never
// changes, because objects are stored under it. remainingProblem is a message for the owner of the Secret, or "" if the
// Secret matches. kind names the kind of the object in the message.
func Verify(current string, reference *corev1.SecretReference, value []byte, problem, kind string) (hash, remainingProblem string) {
	switch {
	case problem != "":
		return current, problem
	case len(value) == 0:
		return current, fmt.Sprintf("secret %s/%s has no key %q; put the identity there", reference.Namespace, reference.Name, apisv1alpha2.SecretKeyAPIExportIdentity)
	}
	sum := sha256.Sum256(value)
	switch hash := hex.EncodeToString(sum[:]); current {
	case "", hash:
		return hash, ""
	}
	return current, fmt.Sprintf("hash mismatch: secret %s/%s holds another identity than that of status.identityHash; restore the secret, or delete the %s and create it again",
		reference.Namespace, reference.Name, kind)
}
