package shardserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authentication"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/shardserver/tokenkeys"
)

// testTokenKeyGenerations: the shard gets a second key. Its replicas run in the phases of that at the same time: the first one knows the first key
// only, one accepts both and signs with the second, and one has retired the first. Which of both keys a replica that accepts both signs with
// makes no other difference.
func testTokenKeyGenerations(t *testing.T, s *tenantEnv) {
	first, second := filepath.Join(s.Directory, "sa.key"), filepath.Join(t.TempDir(), "second.key")
	writeKey(t, second, newSigningKey(t))
	both := s.startReplica(t, []string{first, second}, []int32{1, 2}, second)
	retired := s.startReplica(t, []string{second}, []int32{2}, second)
	old := s.a.token(t, "robot", authenticationv1.TokenRequestSpec{})
	lasting := s.tokenOfSecret(t, "lasting")
	atBoth := tenant{Interface: both.Kubernetes(t, shardtesting.At(both.Admin(t), s.a.cluster))}
	renewed := atBoth.token(t, "robot", authenticationv1.TokenRequestSpec{})

	// Shards that had the logical cluster before it moved here had keys of both generations, too.
	moved := map[int32]*ecdsa.PrivateKey{1: newSigningKey(t), 2: newSigningKey(t)}
	s.bringKeys(t, moved)
	movedOld, movedNew := s.signFor(t, moved[1]), s.signFor(t, moved[2])

	for name, tc := range map[string]struct {
		replica  *shardtesting.Shard
		token    string
		rejected bool
	}{
		"both keys, a token of the first":                                 {both, old, false},
		"both keys, a Secret's token of the first":                        {both, lasting, false},
		"both keys, a token of the second":                                {both, renewed, false},
		"both keys, a token of the first by an earlier shard":             {both, movedOld, false},
		"both keys, a token of the second by an earlier shard":            {both, movedNew, false},
		"the first key, a token of the second":                            {s.Shard, renewed, true},
		"the first is retired, a token of the second":                     {retired, renewed, false},
		"the first is retired, a token of the second by an earlier shard": {retired, movedNew, false},
	} {
		t.Run(name, func(t *testing.T) { s.expectToken(t, tc.replica, tc.token, tc.rejected) })
	}
	for name, token := range map[string]string{
		"a token of the first":                     old,
		"a Secret's token of the first":            lasting,
		"a token of the first by an earlier shard": movedOld, // whose other key is accepted, as seen above
	} {
		t.Run("the first is retired, "+name, func(t *testing.T) { s.expectToken(t, retired, token, true) })
	}
}

// startReplica starts another replica of the shard with keys of service account tokens.
func (te *tenantEnv) startReplica(t *testing.T, keys []string, generations []int32, signing string) *shardtesting.Shard {
	t.Helper()
	return shardtesting.Start(t, func(o *options.Options) {
		transport := te.Server.StorageTransport()
		o.Etcd.StorageConfig.Transport.ServerList = transport.ServerList
		o.Etcd.StorageConfig.Transport.CertFile = transport.CertFile
		o.Etcd.StorageConfig.Transport.KeyFile = transport.KeyFile
		o.Etcd.StorageConfig.Transport.TrustedCAFile = transport.TrustedCAFile
		o.Controllers.Enable = false
		o.Authentication.ServiceAccounts.KeyFiles, o.ServiceAccountPrivateKeyFile = keys, signing
		o.ServiceAccountKeyGenerations = generations
	})
}

// tokenOfSecret returns the token without an expiry of a Secret of robot in A.
func (te *tenantEnv) tokenOfSecret(t *testing.T, name string) string {
	t.Helper()
	secrets := te.a.CoreV1().Secrets("default")
	create(t, secrets.Create, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}, Type: corev1.SecretTypeServiceAccountToken,
	})
	filled := func() (token string) {
		t.Helper()
		shardtesting.Eventually(t, "the Secret has a token", func(ctx context.Context) error {
			secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
			if err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
				err = fmt.Errorf("it has none")
			}
			if err == nil {
				token = string(secret.Data[corev1.ServiceAccountTokenKey])
			}
			return err
		})
		return token
	}
	filled()
	// These are the ways in which owners find such Secrets, and get a token of another key.
	selected, err := secrets.List(t.Context(), metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	if err != nil || !slices.ContainsFunc(selected.Items, func(secret corev1.Secret) bool { return secret.Name == name }) {
		t.Errorf("Secrets with tokens: %v, %v", selected, err)
	}
	patch := []byte(`{"data": {"token": null}}`)
	if _, err := secrets.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	return filled()
}

// bringKeys gives the LogicalCluster of A the keys of shards that had it before, by generation.
func (te *tenantEnv) bringKeys(t *testing.T, keys map[int32]*ecdsa.PrivateKey) {
	t.Helper()
	shard := tokenkeys.Shard{Generations: map[string]int32{}}
	for generation, key := range keys {
		getter, err := serviceaccount.StaticPublicKeysGetter([]any{key.Public()})
		if err != nil {
			t.Fatal(err)
		}
		public := getter.GetPublicKeys(t.Context(), "")
		shard.Keys = append(shard.Keys, public...)
		shard.Generations[public[0].KeyID] = generation
	}
	value := tokenkeys.HandOver("", shard, time.Hour, time.Now())
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, corev1alpha1.TokenKeysAnnotationKey, value)
	cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}
	if err := te.Client(t, te.Masters(t)).Patch(shardtesting.In(t.Context(), te.a.cluster), cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// signFor signs a token for robot in A.
func (te *tenantEnv) signFor(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	const issuer = "https://kcp.default.svc"
	account, err := te.a.CoreV1().ServiceAccounts("default").Get(t.Context(), "robot", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	generator, err := authentication.NewTokenGenerator(issuer, key)
	if err != nil {
		t.Fatal(err)
	}
	claims, private, err := serviceaccount.Claims(core.ServiceAccount{ObjectMeta: account.ObjectMeta}, nil, nil, nil, nil, nil, 3600, 0, []string{issuer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := generator.GenerateToken(logicalcluster.With(t.Context(), logicalcluster.MustParseName(te.a.cluster)), claims, private)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (te *tenantEnv) expectToken(t *testing.T, replica *shardtesting.Shard, token string, rejected bool) {
	t.Helper()
	config := rest.AnonymousClientConfig(replica.Admin(t))
	config.BearerToken = token
	robot := replica.Kubernetes(t, shardtesting.At(config, te.a.cluster))
	if rejected {
		if got, err := currentWorkspace(t.Context(), robot); !apierrors.IsUnauthorized(err) {
			t.Errorf("got %q, %v, want Unauthorized", got, err)
		}
		return
	}
	eventually(t, "the token is accepted", func(ctx context.Context) error {
		got, err := currentWorkspace(ctx, robot)
		if err == nil && got != te.a.name {
			err = fmt.Errorf("it is of workspace %q", got)
		}
		return err
	})
}

func newSigningKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writeKey(t *testing.T, file string, key *ecdsa.PrivateKey) {
	t.Helper()
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
}
