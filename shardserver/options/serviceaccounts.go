package options

import (
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
	return nil
}

// ServiceAccountKeys returns the public keys that sign service account tokens on this shard and on others.
func (o *Options) ServiceAccountKeys() (serviceaccount.PublicKeysGetter, error) {
	var keys []any
	for _, file := range slices.Concat(o.Authentication.ServiceAccounts.KeyFiles, o.RemoteServiceAccountKeyFiles) {
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
