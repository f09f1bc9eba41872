package shardserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	api "k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/yaml"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/identity"
	"github.com/atoll-dev/atoll/shardserver/bootstrap/rootapis"
)

const (
	identityNamespace = apisv1alpha2.IdentitySecretNamespace
	identityKey       = apisv1alpha2.SecretKeyAPIExportIdentity
)

// identifier returns the identity hashes of the root exports by resource, given the storage of the core group.
type identifier func(ctx context.Context, core map[string]rest.Storage) (map[schema.GroupResource]string, error)

// identify makes the identities if this is the root shard, and else has them from it.
func (c *Config) identify(ctx context.Context, core map[string]rest.Storage) (map[schema.GroupResource]string, error) {
	if !c.options.IsRoot() {
		var err error
		c.origin, err = c.join(ctx, core["configmaps"])
		if err != nil {
			return nil, err
		}
		return c.origin.identities.ByResource(), nil
	}
	seeds, err := readIdentitySeeds(c.options.Shard.RootIdentitiesFile)
	if err != nil {
		return nil, err
	}
	secrets, ok := core["secrets"].(secretStore)
	if !ok {
		return nil, fmt.Errorf("the storage of secrets is %T, which cannot hold identities", core["secrets"])
	}
	return ensureIdentities(ctx, secrets, seeds)
}

// secretStore is what identities need of the secrets' storage.
type secretStore interface {
	rest.Getter
	rest.Creater
}

// ensureIdentities reads the identity secrets of the root exports, creating those that are missing, and returns
// the identity hash by resource. It works on storage directly because the APIs that depend on the answer are not
// served yet. Several replicas may do this at once: the first secret written wins.
func ensureIdentities(ctx context.Context, secrets secretStore, seeds map[string]string) (map[schema.GroupResource]string, error) {
	ctx = request.WithNamespace(logicalcluster.With(ctx, logicalcluster.Root), identityNamespace)
	identities := map[schema.GroupResource]string{}
	for _, export := range rootapis.Exports() {
		value, err := ensureIdentity(ctx, secrets, export.Name, seeds[export.Name])
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

func ensureIdentity(ctx context.Context, secrets secretStore, name, seed string) ([]byte, error) {
	if seed == "" {
		seed = identity.New()
	}
	for {
		obj, err := secrets.Get(ctx, name, &metav1.GetOptions{})
		if err == nil {
			value := obj.(*api.Secret).Data[identityKey]
			if len(value) == 0 {
				return nil, fmt.Errorf("secret %s/%s has no data key %q; restore it from a backup, or every object of the export is out of reach", identityNamespace, name, identityKey)
			}
			return value, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		_, err = secrets.Create(ctx, &api.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: identityNamespace},
			Type:       api.SecretTypeOpaque,
			Data:       map[string][]byte{identityKey: []byte(seed)},
		}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
}

// readIdentitySeeds reads the file of --root-identities-file.
func readIdentitySeeds(file string) (map[string]string, error) {
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
