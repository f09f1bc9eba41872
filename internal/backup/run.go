// Package backup saves the etcds and Secrets of an installation to an S3 store, verifies such a backup, and restores an etcd from it. The
// operator decides when, and gives the configuration; this package runs in a pod beside the etcds, or on the machine of a person.
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"time"

	"filippo.io/age"
	"go.etcd.io/etcd/api/v3/version"
	"golang.org/x/sync/errgroup"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/backup/objectstore"
	"github.com/atoll-dev/atoll/internal/backup/seal"
	"github.com/atoll-dev/atoll/internal/backup/snapshot"
	"github.com/atoll-dev/atoll/internal/buildversion"
)

// concurrentUploads bounds the memory of a run: each upload has a part and the window of a compressor.
const concurrentUploads = 2

// run is one backup.
type run struct {
	cfg        *config.Backup
	store      *objectstore.Store
	recipients []age.Recipient
	log        *slog.Logger
}

// Run makes a backup and returns its manifest and the digest of that. After an error there is no manifest, so no backup.
func Run(ctx context.Context, cfg *config.Backup, log *slog.Logger) (*manifest.Manifest, string, error) {
	if cfg.ID == "" || len(cfg.Shards) == 0 {
		return nil, "", errors.New("the configuration needs an id and shards")
	}
	recipients, err := seal.ParseRecipients(cfg.Store.Recipients)
	if err != nil {
		return nil, "", err
	}
	store, err := objectstore.Open(cfg.Store)
	if err != nil {
		return nil, "", err
	}
	defer store.Close()
	r := &run{cfg, store, recipients, log}
	out := &manifest.Manifest{
		FormatVersion: manifest.Version, ID: cfg.ID, WrittenBy: buildversion.Get(), EtcdVersion: version.Version,
		Installation: manifest.Installation(cfg.Installation), StartedAt: now(), Recipients: cfg.Store.Recipients, Shards: make([]manifest.Shard, len(cfg.Shards)),
	}
	// Before anything is read, so that etcd keeps no pages for a store that refuses.
	if err := store.Check(ctx); err != nil {
		return nil, "", err
	}
	if len(cfg.Secrets) > 0 {
		if out.Secrets, err = r.saveSecrets(ctx); err != nil {
			return nil, "", err
		}
	}
	if err := r.saveShards(ctx, out); err != nil {
		return nil, "", err
	}
	out.StoppedAt = now()
	content, err := out.Encode()
	if err != nil {
		return nil, "", err
	}
	if err := store.PutBytes(ctx, manifest.Key(cfg.ID, manifest.Name), content); err != nil {
		return nil, "", err
	}
	digest := sha256.Sum256(content)
	return out, hex.EncodeToString(digest[:]), nil
}

// saveShards begins the snapshots of all shards together, so that they are of nearly one moment, and uploads a few at a time.
func (r *run) saveShards(ctx context.Context, out *manifest.Manifest) error {
	streams := make([]*snapshot.Stream, len(r.cfg.Shards))
	defer func() {
		for _, stream := range streams {
			if stream != nil {
				_ = stream.Close() // what was read is verified
			}
		}
	}()
	out.CutStartedAt = now()
	opening, openCtx := errgroup.WithContext(ctx)
	for i, shard := range r.cfg.Shards {
		opening.Go(func() (err error) {
			// Not of openCtx, which ends before the stream is read.
			streams[i], err = snapshot.Open(ctx, shard)
			if err == nil && openCtx.Err() != nil {
				return openCtx.Err()
			}
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		return err
	}
	out.CutStoppedAt = now()
	uploads, ctx := errgroup.WithContext(ctx)
	uploads.SetLimit(concurrentUploads)
	for i, shard := range r.cfg.Shards {
		uploads.Go(func() (err error) {
			out.Shards[i], err = r.saveShard(ctx, shard, streams[i])
			if err != nil {
				return fmt.Errorf("shard %s: %w", shard.Name, err)
			}
			return nil
		})
	}
	return uploads.Wait()
}

func (r *run) saveShard(ctx context.Context, shard config.Shard, stream *snapshot.Stream) (manifest.Shard, error) {
	out := manifest.Shard{
		Name: shard.Name, Prefix: shard.Prefix, EtcdClusterID: stream.ClusterID, EtcdVersion: stream.Version, RevisionFrom: stream.RevisionFrom, RevisionTo: stream.RevisionTo,
	}
	var err error
	// The inventory first: the revision that it reads may be compacted while a large snapshot is uploaded.
	out.Inventory, err = r.save(ctx, manifest.InventoryName(shard.Name), func(w io.Writer) error {
		lines := json.NewEncoder(w)
		return stream.Inventory(ctx, shard.Prefix, func(line manifest.Line) error {
			if line.LogicalCluster != "" {
				out.LogicalClusters++
			} else {
				out.ExportIdentities++
			}
			return lines.Encode(line)
		})
	})
	if err != nil {
		return out, err
	}
	out.Snapshot, err = r.save(ctx, manifest.SnapshotName(shard.Name), func(w io.Writer) error {
		_, err := stream.WriteTo(w)
		return err
	})
	if err == nil {
		r.log.Info("saved shard", "shard", shard.Name, "revision", out.RevisionFrom, "bytes", out.Snapshot.ContentSize, "stored", out.Snapshot.Size)
	}
	return out, err
}

// save seals what a function writes while it is uploaded. An error of the function ends the upload without an object.
func (r *run) save(ctx context.Context, name string, write func(io.Writer) error) (manifest.Object, error) {
	reader, writer := io.Pipe()
	content := newMeter()
	done := make(chan error, 1)
	go func() {
		err := r.seal(writer, func(w io.Writer) error { return write(io.MultiWriter(w, content)) })
		writer.CloseWithError(err)
		done <- err
	}()
	stored := newMeter()
	size, err := r.store.Put(ctx, manifest.Key(r.cfg.ID, name), io.TeeReader(reader, stored))
	if err == nil && size != stored.n {
		err = fmt.Errorf("writing %s: the store has %d bytes of %d", name, size, stored.n)
	}
	reader.CloseWithError(errOr(err, io.ErrClosedPipe)) // ends the writer if the upload ended before it
	writeErr := <-done
	if writeErr != nil && (err == nil || !errors.Is(writeErr, err)) {
		// The upload failed because its content did.
		err = writeErr
	}
	if err != nil {
		return manifest.Object{}, err
	}
	return manifest.Object{Name: name, Size: stored.n, Digest: stored.digest(), ContentSize: content.n, ContentDigest: content.digest()}, nil
}

func (r *run) seal(into io.Writer, write func(io.Writer) error) error {
	sealed, err := seal.NewWriter(into, r.recipients)
	if err != nil {
		return err
	}
	if err := write(sealed); err != nil {
		return err // without its end, the content is truncated
	}
	return sealed.Close()
}

func errOr(err, fallback error) error {
	if err != nil {
		return err
	}
	return fallback
}

// meter counts and hashes what is written to it.
type meter struct {
	hash hash.Hash
	n    int64
}

func newMeter() *meter { return &meter{hash: sha256.New()} }

func (m *meter) Write(p []byte) (int, error) {
	m.n += int64(len(p))
	return m.hash.Write(p)
}

func (m *meter) digest() string { return hex.EncodeToString(m.hash.Sum(nil)) }

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
