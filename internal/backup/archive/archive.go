// Package archive reads what is stored of a backup: its manifest, and its objects, each checked against the manifest. It knows nothing of etcd,
// so that the operator can read the Secrets of a backup without the libraries of etcd's server.
package archive

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"filippo.io/age"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/backup/objectstore"
	"github.com/atoll-dev/atoll/internal/backup/seal"
)

// maxManifestBytes bounds what is read of a manifest.
const maxManifestBytes = 16 << 20

// MaxOperatorManifestBytes bounds the manifest of a backup in the memory of the operator: more than a thousand shards.
const MaxOperatorManifestBytes = 1 << 20

// Backup is a backup in a store, opened for reading.
type Backup struct {
	store      *objectstore.Store
	identities []age.Identity
	Manifest   *manifest.Manifest
	// Digest is the SHA-256 digest of the manifest.
	Digest string
}

// List returns the manifests of the folders of a store that have one, oldest first. The error names those that cannot be read, and the
// others are returned with it.
func List(ctx context.Context, cfg config.Store) ([]*manifest.Manifest, error) {
	store, err := objectstore.Open(cfg)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	ids, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []*manifest.Manifest
	var problems []error
	for _, id := range ids {
		found, _, err := readManifest(ctx, store, id, "", maxManifestBytes)
		switch {
		case objectstore.HasReason(err, objectstore.ReasonObjectNotFound):
		case err != nil:
			problems = append(problems, err)
		default:
			out = append(out, found)
		}
	}
	return out, errors.Join(problems...)
}

// Open reads the manifest of a backup. If a digest is given, a manifest with another one is refused. identities decrypt the objects.
func Open(ctx context.Context, cfg config.Store, id, digest string, identities []age.Identity) (*Backup, error) {
	store, err := objectstore.Open(cfg)
	if err != nil {
		return nil, err
	}
	return OpenIn(ctx, store, id, digest, maxManifestBytes, identities)
}

// OpenIn is Open in a store that is open already, for a manifest of at most maxBytes. Close closes it; an error has closed it.
func OpenIn(ctx context.Context, store *objectstore.Store, id, digest string, maxBytes int64, identities []age.Identity) (*Backup, error) {
	found, got, err := readManifest(ctx, store, id, digest, maxBytes)
	if err != nil {
		store.Close()
		return nil, err
	}
	return &Backup{store, identities, found, got}, nil
}

// Close ends the connections to the store.
func (b *Backup) Close() { b.store.Close() }

// readManifest reads a manifest of at most maxBytes. With a digest, one that has another is refused before it is decoded.
func readManifest(ctx context.Context, store *objectstore.Store, id, want string, maxBytes int64) (*manifest.Manifest, string, error) {
	object, _, err := store.Get(ctx, manifest.Key(id, manifest.Name))
	if err != nil {
		return nil, "", err
	}
	defer object.Close()
	content, err := io.ReadAll(io.LimitReader(object, maxBytes+1))
	if err != nil {
		return nil, "", fmt.Errorf("reading %s of backup %s: %w", manifest.Name, id, err)
	}
	if int64(len(content)) > maxBytes {
		return nil, "", fmt.Errorf("%s of backup %s has more than %d bytes, which are not read", manifest.Name, id, maxBytes)
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	if want != "" && digest != want {
		return nil, "", fmt.Errorf("%s has the digest %s, want %s: it is not the backup that was made", store.Location(manifest.Key(id, manifest.Name)), digest, want)
	}
	out, err := manifest.Decode(content)
	if err != nil {
		return nil, "", fmt.Errorf("backup %s: %w", id, err)
	}
	if out.ID != id {
		return nil, "", fmt.Errorf("backup %s: %s is that of backup %q", id, manifest.Name, out.ID)
	}
	return out, digest, nil
}

// Read passes the content of an object to a writer, and returns an error with the place of the damage unless the object and its content
// are those of the manifest.
func (b *Backup) Read(ctx context.Context, object manifest.Object, into io.Writer) error {
	location := b.store.Location(manifest.Key(b.Manifest.ID, object.Name))
	stored, size, err := b.store.Get(ctx, manifest.Key(b.Manifest.ID, object.Name))
	if err != nil {
		return err
	}
	defer stored.Close()
	if size != object.Size {
		return fmt.Errorf("%s is damaged: it has %d bytes, want %d; the shorter of the two is truncated there", location, size, object.Size)
	}
	outer, inner := NewMeter(), NewMeter()
	opened, err := seal.NewReader(io.TeeReader(stored, outer), b.identities)
	if err != nil {
		return fmt.Errorf("%s: %w", location, err)
	}
	defer opened.Close()
	// One byte more than it should have is enough to refuse another object, however large it is.
	if _, err := io.Copy(io.MultiWriter(into, inner), io.LimitReader(opened, object.ContentSize+1)); err != nil {
		return fmt.Errorf("%s: %w", location, err)
	}
	if outer.N != object.Size || outer.Digest() != object.Digest || inner.N != object.ContentSize || inner.Digest() != object.ContentDigest {
		return fmt.Errorf("%s is damaged: it can be decrypted, and is another object than that of the manifest", location)
	}
	return nil
}

// Lines passes the lines of an inventory to a function.
func (b *Backup) Lines(ctx context.Context, inventory manifest.Object, visit func(manifest.Line)) error {
	return b.parse(ctx, inventory, func(content io.Reader) error {
		scanner := bufio.NewScanner(content)
		for scanner.Scan() {
			var line manifest.Line
			if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
				return err
			}
			visit(line)
		}
		return scanner.Err()
	})
}

// parse passes the content of an object to a function while it is read. What the function has read is that of the manifest only if parse
// returns no error.
func (b *Backup) parse(ctx context.Context, object manifest.Object, function func(io.Reader) error) error {
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := function(reader)
		if err == nil {
			_, err = io.Copy(io.Discard, reader) // the digest is that of the whole object
		}
		reader.CloseWithError(err)
		done <- err
	}()
	err := b.Read(ctx, object, writer)
	writer.CloseWithError(err)
	if parseErr := <-done; err == nil {
		err = parseErr
	}
	return err
}

// Shards are the names of the shards.
func (b *Backup) Shards() []string {
	var out []string
	for _, shard := range b.Manifest.Shards {
		out = append(out, shard.Name)
	}
	return out
}

// Meter counts and hashes what is written to it.
type Meter struct {
	// N is the number of bytes.
	N    int64
	hash hash.Hash
}

// NewMeter returns a Meter.
func NewMeter() *Meter { return &Meter{hash: sha256.New()} }

// Write implements io.Writer.
func (m *Meter) Write(p []byte) (int, error) {
	m.N += int64(len(p))
	return m.hash.Write(p)
}

// Digest is the SHA-256 digest, in hexadecimal.
func (m *Meter) Digest() string { return hex.EncodeToString(m.hash.Sum(nil)) }
