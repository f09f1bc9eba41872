package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
)

// maxSecretBytes bounds the manifest of a Secret: Kubernetes limits its data to a megabyte.
const maxSecretBytes = 4 << 20

// secretManifest is a Secret as kubectl applies it. The types of Kubernetes are not linked into etcd.
type secretManifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   secretMetadata    `json:"metadata"`
	Type       string            `json:"type,omitempty"`
	Data       map[string][]byte `json:"data"`
}

type secretMetadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// saveSecrets uploads the bundle: a tar with a manifest of each Secret.
func (r *run) saveSecrets(ctx context.Context) (*manifest.Secrets, error) {
	out := &manifest.Secrets{Certificates: map[string]string{}}
	var err error
	out.Object, err = r.save(ctx, manifest.SecretsName, func(w io.Writer) error {
		archive := tar.NewWriter(w)
		for _, secret := range r.cfg.Secrets {
			data, err := readSecret(secret)
			if err != nil {
				return err
			}
			err = writeSecret(archive, secretManifest{
				APIVersion: "v1", Kind: "Secret", Type: secret.Type, Data: data,
				Metadata: secretMetadata{Name: secret.Name, Labels: secret.Labels, Annotations: secret.Annotations},
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
		return archive.Close()
	})
	return out, err
}

func secretFile(name string) string { return "secrets/" + name + ".json" }

func writeSecret(archive *tar.Writer, secret secretManifest) error {
	content, err := json.MarshalIndent(secret, "", "  ")
	if err != nil {
		return err
	}
	header := &tar.Header{Name: secretFile(secret.Metadata.Name), Mode: 0o600, Size: int64(len(content)), ModTime: time.Now(), Format: tar.FormatPAX}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}

// copySecrets copies a bundle with exactly the Secrets of these names, each encoded again: a person applies all that is in it, with the
// rights of that person.
func copySecrets(into io.Writer, from io.Reader, names []string) error {
	source, out := tar.NewReader(from), tar.NewWriter(into)
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	for {
		header, err := source.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading the bundle of Secrets: %w", err)
		}
		secret, err := decodeSecret(source)
		if err != nil {
			return fmt.Errorf("%q in the bundle of Secrets is none: %w", header.Name, err)
		}
		name := secret.Metadata.Name
		if header.Typeflag != tar.TypeReg || header.Name != secretFile(name) || strings.ContainsAny(name, `/\`) || !missing[name] {
			return fmt.Errorf("the bundle of Secrets contains %q, Secret %q: want one file for each of %s", header.Name, name, strings.Join(names, ", "))
		}
		delete(missing, name)
		if err := writeSecret(out, secret); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the bundle of Secrets lacks %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return out.Close()
}

// decodeSecret reads the manifest of a Secret, and nothing else.
func decodeSecret(from io.Reader) (secretManifest, error) {
	var out secretManifest
	decoder := json.NewDecoder(io.LimitReader(from, maxSecretBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		return out, errors.New("it is no manifest of a Secret") // the error of the decoder may quote its content
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return out, errors.New("it continues after a Secret")
	}
	if out.APIVersion != "v1" || out.Kind != "Secret" {
		return out, fmt.Errorf("it is of kind %q in %q", out.Kind, out.APIVersion)
	}
	return out, nil
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
