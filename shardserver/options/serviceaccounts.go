package options

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/atoll-dev/atoll/shardserver/tokenkeys"
)

// serviceAccountKeyBits is the size of a generated signing key.
const serviceAccountKeyBits = 4096

// completeServiceAccounts ensures that there is a key for signing and a key for verifying tokens.
func (c *completed) completeServiceAccounts() error {
	if c.ServiceAccountPrivateKeyFile == "" {
		if c.RootDirectory == "" {
			return fmt.Errorf("no serviceaccount key file loaded and no root directory set: give --service-account-private-key-file (and --service-account-key-file) or --root-directory")
		}
		c.ServiceAccountPrivateKeyFile = filepath.Join(c.RootDirectory, "sa.key")
		if err := ensureKey(c.ServiceAccountPrivateKeyFile); err != nil {
			return fmt.Errorf("creating the service account key: %w", err)
		}
	}
	if len(c.Authentication.ServiceAccounts.KeyFiles) == 0 {
		c.Authentication.ServiceAccounts.KeyFiles = []string{c.ServiceAccountPrivateKeyFile}
	}
	return c.checkKeyGenerations()
}

func (c *completed) checkKeyGenerations() error {
	generations, files := c.ServiceAccountKeyGenerations, c.Authentication.ServiceAccounts.KeyFiles
	if len(generations) > len(files) {
		return fmt.Errorf("--service-account-key-generations: got %d generations, expected at most one for each of the %d files of --service-account-key-file", len(generations), len(files))
	}
	for _, generation := range generations {
		if generation < 1 {
			return fmt.Errorf("--service-account-key-generations: got %d, expected numbers of 1 and more", generation)
		}
	}
	return nil
}

// TokenKeys returns what the shard verifies the tokens of its own logical clusters with.
func (o *Options) TokenKeys() (tokenkeys.Shard, error) {
	out := tokenkeys.Shard{Generations: map[string]int32{}}
	for i, file := range o.Authentication.ServiceAccounts.KeyFiles {
		keys, err := readPublicKeys([]string{file})
		if err != nil {
			return tokenkeys.Shard{}, err
		}
		for _, key := range keys.GetPublicKeys(context.Background(), "") {
			out.Keys = append(out.Keys, key)
			if generations := o.ServiceAccountKeyGenerations; len(generations) > 0 {
				out.Generations[key.KeyID] = generations[min(i, len(generations)-1)]
			}
		}
	}
	return out, nil
}

// ServiceAccountKeys returns the public keys that sign service account tokens on this shard and on others.
func (o *Options) ServiceAccountKeys() (serviceaccount.PublicKeysGetter, error) {
	return readPublicKeys(slices.Concat(o.Authentication.ServiceAccounts.KeyFiles, o.RemoteServiceAccountKeyFiles))
}

func readPublicKeys(files []string) (serviceaccount.PublicKeysGetter, error) {
	var keys []any
	for _, file := range files {
		more, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the keys of service account tokens: %w", err)
		}
		keys = append(keys, more...)
	}
	return serviceaccount.StaticPublicKeysGetter(keys)
}

func ensureKey(file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, serviceAccountKeyBits)
	if err != nil {
		return err
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, encoded, 0o600)
}
