package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/atoll-dev/atoll/internal/backup/archive"
	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
)

// saveSecrets uploads the bundle: a tar with a manifest of each Secret.
func (r *run) saveSecrets(ctx context.Context) (*manifest.Secrets, error) {
	out := &manifest.Secrets{Certificates: map[string]string{}}
	var err error
	out.Object, err = r.save(ctx, manifest.SecretsName, func(w io.Writer) error {
		bundle := tar.NewWriter(w)
		for _, secret := range r.cfg.Secrets {
			data, err := readSecret(secret)
			if err != nil {
				return err
			}
			err = archive.WriteSecret(bundle, archive.Secret{
				APIVersion: "v1", Kind: "Secret", Type: secret.Type, Data: data,
				Metadata: archive.SecretMetadata{Name: secret.Name, Labels: secret.Labels, Annotations: secret.Annotations},
			})
			if err != nil {
				return err
			}
			out.Names = append(out.Names, secret.Name)
			for key, value := range data {
				if fingerprint, ok := certificateFingerprint(value); ok {
					out.Certificates[secret.Name+"/"+key] = fingerprint
				}
			}
		}
		return bundle.Close()
	})
	return out, err
}

// readSecret reads a Secret that is mounted: its keys are the files that are not hidden.
func readSecret(secret config.Secret) (map[string][]byte, error) {
	entries, err := os.ReadDir(secret.Directory)
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", secret.Name, err)
	}
	data := map[string][]byte{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue // links of the kubelet
		}
		value, err := os.ReadFile(filepath.Join(secret.Directory, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", secret.Name, err)
		}
		data[entry.Name()] = value
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("reading Secret %s: it has no keys", secret.Name)
	}
	return data, nil
}

// certificateFingerprint returns the fingerprint of the first certificate in PEM.
func certificateFingerprint(value []byte) (string, bool) {
	if !bytes.Contains(value, []byte("CERTIFICATE")) {
		return "", false
	}
	block, _ := pem.Decode(value)
	if block == nil || block.Type != "CERTIFICATE" {
		return "", false
	}
	digest := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(digest[:]), true
}
