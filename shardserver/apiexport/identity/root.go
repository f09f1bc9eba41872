package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/yaml"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
	"github.com/atoll-dev/atoll/shardserver/bootstrap/rootapis"
)

const (
	rootNamespace = apisv1alpha2.IdentitySecretNamespace
	secretKey     = apisv1alpha2.SecretKeyAPIExportIdentity
)

// secretStorage is the part of the storage of secrets that the identities of root need.
type secretStorage interface {
	rest.Getter
	rest.Creater
}

// EnsureRootIdentities reads the identity secrets of the exports of root, creates those that are missing, and returns the identity
// hashes by resource. New secrets take their identity from the seed file, if it is given and has one for the export.
//
// It works on the storage of secrets because the storage of the exported resources depends on the result, so that nothing
// is served yet. Several replicas may call it at once: the first secret that is created wins.
func EnsureRootIdentities(ctx context.Context, secrets rest.Storage, seedFile string) (map[schema.GroupResource]string, error) {
	storage, ok := secrets.(secretStorage)
	if !ok {
		return nil, fmt.Errorf("the storage of secrets is %T, which cannot hold identities", secrets)
	}
	seeds, err := readSeeds(seedFile)
	if err != nil {
		return nil, err
	}
	ctx = request.WithNamespace(logicalcluster.With(ctx, logicalcluster.Root), rootNamespace)
	identities := map[schema.GroupResource]string{}
	for _, export := range rootapis.Exports() {
		value, err := ensureSecret(ctx, storage, export.Name, seeds[export.Name])
		if err != nil {
			return nil, fmt.Errorf("identity of export %s in %s: %w", export.Name, logicalcluster.Root, err)
		}
		sum := sha256.Sum256(value)
		for _, resource := range export.Resources {
			identities[resource.GroupResource] = hex.EncodeToString(sum[:])
		}
	}
	return identities, nil
}

func ensureSecret(ctx context.Context, secrets secretStorage, name, seed string) ([]byte, error) {
	if seed == "" {
		seed = Generate()
	}
	for {
		obj, err := secrets.Get(ctx, name, &metav1.GetOptions{})
		if err == nil {
			value := obj.(*core.Secret).Data[secretKey]
			if len(value) == 0 {
				return nil, fmt.Errorf("secret %s/%s has no data key %q; restore it from a backup, or every object of the export is out of reach", rootNamespace, name, secretKey)
			}
			return value, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		_, err = secrets.Create(registry.WithRequestInfo(ctx, "create", corev1.SchemeGroupVersion.WithResource("secrets"), ""), &core.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: rootNamespace},
			Type:       core.SecretTypeOpaque,
			Data:       map[string][]byte{secretKey: []byte(seed)},
		}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
}

// readSeeds reads the file of --root-identities-file: identities by the name of their export. An empty name is no file.
func readSeeds(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--root-identities-file: %w", err)
	}
	var content struct {
		Identities []struct {
			Export   string `json:"export"`
			Identity string `json:"identity"`
		} `json:"identities"`
	}
	if err := yaml.UnmarshalStrict(raw, &content); err != nil {
		return nil, fmt.Errorf("--root-identities-file %s: %w", file, err)
	}
	seeds := map[string]string{}
	for i, entry := range content.Identities {
		if entry.Export == "" || entry.Identity == "" {
			return nil, fmt.Errorf("--root-identities-file %s: identities[%d] needs both export and identity", file, i)
		}
		seeds[entry.Export] = entry.Identity
	}
	return seeds, nil
}
