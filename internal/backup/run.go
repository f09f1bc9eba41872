// Package backup saves the etcds and Secrets of an installation to an S3 store, verifies such a backup, and restores an etcd from it. The
// operator decides when, and gives the configuration; this package runs in a pod beside the etcds, or on the machine of a person.
package backup

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"filippo.io/age"
	"go.etcd.io/etcd/api/v3/version"
	"golang.org/x/sync/errgroup"

	"github.com/atoll-dev/atoll/internal/backup/archive"
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
	id         string
	cfg        *config.Backup
	store      *objectstore.Store
	recipients []age.Recipient
	log        *slog.Logger
}

// Made is a backup that was made.
type Made struct {
	Manifest *manifest.Manifest
	// Digest of the manifest, and the Location of its folder for people.
	Digest, Location string
}

// Run makes a backup. After an error there is no manifest, so no backup.
//
// The backup has a folder of its own, whose name begins with the ID of the configuration: two pods of a Job may run at the same time, as when
// a node does not answer, and the one that ends last must not replace objects of the one that has succeeded.
func Run(ctx context.Context, cfg *config.Backup, log *slog.Logger) (*Made, error) {
	if cfg.ID == "" || len(cfg.Shards) == 0 {
		return nil, errors.New("the configuration needs an id and shards")
	}
	recipients, err := seal.ParseRecipients(cfg.Store.Recipients)
	if err != nil {
		return nil, err
	}
	store, err := objectstore.Open(cfg.Store)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	id := cfg.ID + "-" + newSuffix()
	r := &run{id, cfg, store, recipients, log}
	out := &manifest.Manifest{
		FormatVersion: manifest.Version, ID: id, WrittenBy: buildversion.Get(), EtcdVersion: version.Version,
		Installation: manifest.Installation(cfg.Installation), StartedAt: now(), Recipients: cfg.Store.Recipients, Shards: make([]manifest.Shard, len(cfg.Shards)),
	}
	// Before anything is read, so that etcd keeps no pages for a store that refuses.
	if err := store.Check(ctx); err != nil {
		return nil, err
	}
	if len(cfg.Secrets) > 0 {
		if out.Secrets, err = r.saveSecrets(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.saveShards(ctx, out); err != nil {
		return nil, err
	}
	out.StoppedAt = now()
	content, err := out.Encode()
	if err != nil {
		return nil, err
	}
	if err := store.PutBytes(ctx, manifest.Key(id, manifest.Name), content); err != nil {
		return nil, err
	}
	digest := sha256.Sum256(content)
	return &Made{out, hex.EncodeToString(digest[:]), store.Location(id)}, nil
}

// newSuffix returns what distinguishes the folders of one configuration.
func newSuffix() string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
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
	for i, shard := range r.cfg.Shards {
		out.Shards[i] = manifest.Shard{
			Name: shard.Name, Prefix: shard.Prefix, EtcdClusterID: streams[i].ClusterID, EtcdVersion: streams[i].Version, RevisionFrom: streams[i].RevisionFrom, RevisionTo: streams[i].RevisionTo,
		}
	}
	// All inventories before any snapshot: the revisions that they read are compacted some minutes later, while large snapshots are uploaded.
	for _, save := range []func(context.Context, *manifest.Shard, *snapshot.Stream) error{r.saveInventory, r.saveSnapshot} {
		uploads, uploadCtx := errgroup.WithContext(ctx)
		uploads.SetLimit(concurrentUploads)
		for i := range out.Shards {
			uploads.Go(func() error {
				if err := save(uploadCtx, &out.Shards[i], streams[i]); err != nil {
					return fmt.Errorf("shard %s: %w", out.Shards[i].Name, err)
				}
				return nil
			})
		}
		if err := uploads.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) saveInventory(ctx context.Context, shard *manifest.Shard, stream *snapshot.Stream) (err error) {
	shard.Inventory, err = r.save(ctx, manifest.InventoryName(shard.Name), func(w io.Writer) error {
		lines := json.NewEncoder(w)
		return stream.Inventory(ctx, func(line manifest.Line) error {
			if line.LogicalCluster != "" {
				shard.LogicalClusters++
			} else {
				shard.ExportIdentities++
			}
			return lines.Encode(line)
		})
	})
	return err
}

func (r *run) saveSnapshot(ctx context.Context, shard *manifest.Shard, stream *snapshot.Stream) (err error) {
	shard.Snapshot, err = r.save(ctx, manifest.SnapshotName(shard.Name), func(w io.Writer) error {
		_, err := stream.WriteTo(w)
		return err
	})
	if err == nil {
		r.log.Info("saved shard", "shard", shard.Name, "revision", shard.RevisionFrom, "bytes", shard.Snapshot.ContentSize, "stored", shard.Snapshot.Size)
	}
	return err
}

// save seals what a function writes while it is uploaded. An error of the function ends the upload without an object.
func (r *run) save(ctx context.Context, name string, write func(io.Writer) error) (manifest.Object, error) {
	reader, writer := io.Pipe()
	content := archive.NewMeter()
	done := make(chan error, 1)
	go func() {
		err := r.seal(writer, func(w io.Writer) error { return write(io.MultiWriter(w, content)) })
		writer.CloseWithError(err)
		done <- err
	}()
	stored := archive.NewMeter()
	size, err := r.store.Put(ctx, manifest.Key(r.id, name), io.TeeReader(reader, stored))
	if err == nil && size != stored.N {
		err = fmt.Errorf("writing %s: the store has %d bytes of %d", name, size, stored.N)
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
	return manifest.Object{Name: name, Size: stored.N, Digest: stored.Digest(), ContentSize: content.N, ContentDigest: content.Digest()}, nil
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

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
