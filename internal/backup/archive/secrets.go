package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// maxSecretBytes bounds the manifest of a Secret: Kubernetes limits its data to a megabyte.
const maxSecretBytes = 4 << 20

// Secret is a Secret as kubectl applies it. The types of Kubernetes are not linked into etcd.
type Secret struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   SecretMetadata    `json:"metadata"`
	Type       string            `json:"type,omitempty"`
	Data       map[string][]byte `json:"data"`
}

// SecretMetadata is the metadata of a Secret.
type SecretMetadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func secretFile(name string) string { return "secrets/" + name + ".json" }

// WriteSecret adds a Secret to a bundle.
func WriteSecret(archive *tar.Writer, secret Secret) error {
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
	out := tar.NewWriter(into)
	if err := eachSecret(from, names, func(secret Secret) error { return WriteSecret(out, secret) }); err != nil {
		return err
	}
	return out.Close()
}

// eachSecret passes the Secrets of a bundle to a function, and fails unless they are exactly those of these names.
func eachSecret(from io.Reader, names []string, visit func(Secret) error) error {
	source := tar.NewReader(from)
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
		if err := visit(secret); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the bundle of Secrets lacks %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return nil
}

// decodeSecret reads the manifest of a Secret, and nothing else.
func decodeSecret(from io.Reader) (Secret, error) {
	var out Secret
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

// WriteSecrets writes the bundle of Secrets to a new file: a tar that only its user can read, with those Secrets that the manifest names and
// nothing else. A user who writes to the bucket could replace both the bundle and the manifest, unless the digest of the latter was given to Open.
func (b *Backup) WriteSecrets(ctx context.Context, file string) error {
	if b.Manifest.Secrets == nil {
		return fmt.Errorf("backup %s has no Secrets", b.Manifest.ID)
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = b.parse(ctx, b.Manifest.Secrets.Object, func(content io.Reader) error { return copySecrets(out, content, b.Manifest.Secrets.Names) })
	if err = errors.Join(err, out.Close()); err != nil {
		os.Remove(file)
	}
	return err
}

// Secrets returns the Secrets of the backup, those that the manifest names and nothing else. A bundle of more bytes than maxBytes is refused,
// because all of it is in memory.
func (b *Backup) Secrets(ctx context.Context, maxBytes int64) ([]Secret, error) {
	if b.Manifest.Secrets == nil {
		return nil, nil
	}
	bundle := b.Manifest.Secrets
	if bundle.Object.ContentSize > maxBytes {
		return nil, fmt.Errorf("the Secrets of backup %s have %d bytes, at most %d are read", b.Manifest.ID, bundle.Object.ContentSize, maxBytes)
	}
	var out []Secret
	err := b.parse(ctx, bundle.Object, func(content io.Reader) error {
		return eachSecret(content, bundle.Names, func(secret Secret) error {
			out = append(out, secret)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
