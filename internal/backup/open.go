package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/backup/objectstore"
	"github.com/atoll-dev/atoll/internal/backup/seal"
	"github.com/atoll-dev/atoll/internal/backup/snapshot"
)

const (
	// maxManifestBytes bounds what is read of a manifest: some ten thousand shards.
	maxManifestBytes = 16 << 20
	// maxNamed bounds the logical clusters that an error names.
	maxNamed = 10
)

// Backup is a backup in a store, opened for reading.
type Backup struct {
	store      *objectstore.Store
	identities []age.Identity
	Manifest   *manifest.Manifest
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
		found, _, err := readManifest(ctx, store, id)
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
	found, got, err := readManifest(ctx, store, id)
	if err == nil && digest != "" && digest != got {
		err = fmt.Errorf("%s has the digest %s, want %s: it is not the backup that was made", store.Location(manifest.Key(id, manifest.Name)), got, digest)
	}
	if err != nil {
		store.Close()
		return nil, err
	}
	return &Backup{store, identities, found}, nil
}

// Close ends the connections to the store.
func (b *Backup) Close() { b.store.Close() }

func readManifest(ctx context.Context, store *objectstore.Store, id string) (*manifest.Manifest, string, error) {
	object, _, err := store.Get(ctx, manifest.Key(id, manifest.Name))
	if err != nil {
		return nil, "", err
	}
	defer object.Close()
	content, err := io.ReadAll(io.LimitReader(object, maxManifestBytes+1))
	if err != nil {
		return nil, "", fmt.Errorf("reading %s of backup %s: %w", manifest.Name, id, err)
	}
	if len(content) > maxManifestBytes {
		return nil, "", fmt.Errorf("%s of backup %s is damaged: it has more than %d bytes", manifest.Name, id, maxManifestBytes)
	}
	out, err := manifest.Decode(content)
	if err != nil {
		return nil, "", fmt.Errorf("backup %s: %w", id, err)
	}
	if out.ID != id {
		return nil, "", fmt.Errorf("backup %s: %s is that of backup %q", id, manifest.Name, out.ID)
	}
	digest := sha256.Sum256(content)
	return out, hex.EncodeToString(digest[:]), nil
}

// read passes the content of an object to a writer, and returns an error with the place of the damage unless the object and its content
// are those of the manifest.
func (b *Backup) read(ctx context.Context, object manifest.Object, into io.Writer) error {
	location := b.store.Location(manifest.Key(b.Manifest.ID, object.Name))
	stored, size, err := b.store.Get(ctx, manifest.Key(b.Manifest.ID, object.Name))
	if err != nil {
		return err
	}
	defer stored.Close()
	if size != object.Size {
		return fmt.Errorf("%s is damaged: it has %d bytes, want %d; the shorter of the two is truncated there", location, size, object.Size)
	}
	outer, inner := newMeter(), newMeter()
	opened, err := seal.NewReader(io.TeeReader(stored, outer), b.identities)
	if err != nil {
		return fmt.Errorf("%s: %w", location, err)
	}
	defer opened.Close()
	// One byte more than it should have is enough to refuse another object, however large it is.
	if _, err := io.Copy(io.MultiWriter(into, inner), io.LimitReader(opened, object.ContentSize+1)); err != nil {
		return fmt.Errorf("%s: %w", location, err)
	}
	if outer.n != object.Size || outer.digest() != object.Digest || inner.n != object.ContentSize || inner.digest() != object.ContentDigest {
		return fmt.Errorf("%s is damaged: it can be decrypted, and is another object than that of the manifest", location)
	}
	return nil
}

// Verify reads all objects, and writes nothing to disk.
func (b *Backup) Verify(ctx context.Context) error {
	var problems []error
	for _, object := range b.Manifest.Objects() {
		check := snapshot.NewCheck()
		err := b.read(ctx, object, check)
		if err == nil && strings.HasPrefix(filepath.Base(object.Name), "etcd.snapshot.") {
			err = check.Verify()
		}
		if err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// RestoreShard restores the etcd of a shard into a data directory. The snapshot is verified and compared with the inventory before the
// directory exists. It needs space for twice the database.
func (b *Backup) RestoreShard(ctx context.Context, name string, target snapshot.Target) (*manifest.Shard, error) {
	at := slices.IndexFunc(b.Manifest.Shards, func(shard manifest.Shard) bool { return shard.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("backup %s has no shard %q: it has %s", b.Manifest.ID, name, strings.Join(b.shards(), ", "))
	}
	shard := &b.Manifest.Shards[at]
	if err := target.Check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(target.DataDir), 0o700); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(filepath.Dir(target.DataDir), ".snapshot-*.db")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	check := snapshot.NewCheck()
	if err := b.read(ctx, shard.Snapshot, io.MultiWriter(file, check)); err != nil {
		return nil, err
	}
	if err := errors.Join(check.Verify(), file.Sync()); err != nil {
		return nil, err
	}
	if err := b.compare(ctx, shard, file.Name()); err != nil {
		return nil, err
	}
	return shard, target.Restore(file.Name())
}

// compare compares a snapshot with the inventory, which was read of etcd by other requests.
func (b *Backup) compare(ctx context.Context, shard *manifest.Shard, file string) error {
	state, err := snapshot.Read(file, shard.Prefix, shard.RevisionFrom)
	if err != nil {
		return err
	}
	if state.Latest < shard.RevisionFrom || state.Latest > shard.RevisionTo {
		return fmt.Errorf("the snapshot of shard %s ends at revision %d, want one from %d to %d", shard.Name, state.Latest, shard.RevisionFrom, shard.RevisionTo)
	}
	var missing []string
	missed := 0
	err = b.lines(ctx, shard.Inventory, func(line manifest.Line) {
		if line.LogicalCluster == "" || state.Remove(line.LogicalCluster) {
			return
		}
		if missed++; missed <= maxNamed {
			missing = append(missing, line.LogicalCluster)
		}
	})
	if err != nil {
		return err
	}
	unexpected := state.LogicalClusters()
	if missed == 0 && len(unexpected) == 0 {
		return nil
	}
	return fmt.Errorf("the snapshot of shard %s differs from its inventory: %d logical clusters are missing (%s), %d are unexpected (%s)",
		shard.Name, missed, strings.Join(missing, ", "), len(unexpected), strings.Join(unexpected[:min(len(unexpected), maxNamed)], ", "))
}

// lines passes the lines of an inventory to a function.
func (b *Backup) lines(ctx context.Context, inventory manifest.Object, visit func(manifest.Line)) error {
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
	err := b.read(ctx, object, writer)
	writer.CloseWithError(err)
	if parseErr := <-done; err == nil {
		err = parseErr
	}
	return err
}

// WriteSecrets writes the bundle of Secrets to a new file: a tar that only its user can read, with those Secrets that the manifest names and
// nothing else. Whoever writes to the bucket could make the bundle as well as the manifest, unless the digest of the latter was given to Open.
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

func (b *Backup) shards() []string {
	var out []string
	for _, shard := range b.Manifest.Shards {
		out = append(out, shard.Name)
	}
	return out
}
