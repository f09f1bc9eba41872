package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"go.etcd.io/etcd/api/v3/version"
	"golang.org/x/mod/semver"

	"github.com/atoll-dev/atoll/internal/backup/archive"
	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/backup/snapshot"
)

// maxNamed bounds the logical clusters that an error names.
const maxNamed = 10

// Backup is a backup in a store, opened for reading.
type Backup struct{ *archive.Backup }

// Open opens a backup, as archive.Open does.
func Open(ctx context.Context, cfg config.Store, id, digest string, identities []age.Identity) (*Backup, error) {
	opened, err := archive.Open(ctx, cfg, id, digest, identities)
	if err != nil {
		return nil, err
	}
	return &Backup{opened}, nil
}

// Verify reads all objects, and writes nothing to disk.
func (b *Backup) Verify(ctx context.Context) error {
	var problems []error
	for _, object := range b.Manifest.Objects() {
		check := snapshot.NewCheck()
		err := b.Read(ctx, object, check)
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
// directory exists. It needs space for twice the database. It reports whether an earlier attempt of the same restore has made the directory.
func (b *Backup) RestoreShard(ctx context.Context, name string, target snapshot.Target, owner snapshot.Owner) (shard *manifest.Shard, repeated bool, err error) {
	at := slices.IndexFunc(b.Manifest.Shards, func(shard manifest.Shard) bool { return shard.Name == name })
	if at < 0 {
		return nil, false, fmt.Errorf("backup %s has no shard %q: it has %s", b.Manifest.ID, name, strings.Join(b.Shards(), ", "))
	}
	shard = &b.Manifest.Shards[at]
	if err := checkVersion(shard); err != nil {
		return nil, false, err
	}
	if err := owner.CheckPrefix(shard.Prefix); err != nil {
		return nil, false, fmt.Errorf("the snapshot of shard %s: %w", shard.Name, err)
	}
	unlock, err := target.Lock()
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	if repeated, err = target.IsRestored(); err != nil || repeated {
		return shard, repeated, err
	}
	if err := target.Check(); err != nil {
		return nil, false, err
	}
	file := target.SnapshotFile() // an earlier attempt that was killed may have left it
	defer os.Remove(file)
	if err := b.download(ctx, shard, file); err != nil {
		return nil, false, err
	}
	state, err := b.compare(ctx, shard, file)
	if err != nil {
		return nil, false, err
	}
	if err := state.Mark(file, shard.Prefix, owner, b.Manifest.ID); err != nil {
		return nil, false, fmt.Errorf("the snapshot of shard %s: %w", shard.Name, err)
	}
	return shard, false, target.Restore(file)
}

// download writes the snapshot of a shard to a file, and checks it.
func (b *Backup) download(ctx context.Context, shard *manifest.Shard, name string) error {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	check := snapshot.NewCheck()
	if err := b.Read(ctx, shard.Snapshot, io.MultiWriter(file, check)); err != nil {
		return err
	}
	return errors.Join(check.Verify(), file.Sync())
}

// checkVersion refuses the database of a newer etcd than that of this program, which would not understand it.
func checkVersion(shard *manifest.Shard) error {
	saved, own := "v"+shard.EtcdVersion, "v"+version.Version
	if semver.IsValid(saved) && semver.Compare(semver.MajorMinor(saved), semver.MajorMinor(own)) > 0 {
		return fmt.Errorf("shard %s was saved from etcd %s, and this is etcd %s: restore it with the version of the image that wrote the backup, or a newer one", shard.Name, shard.EtcdVersion, version.Version)
	}
	return nil
}

// compare compares a snapshot with the inventory, which was read of etcd by other requests.
func (b *Backup) compare(ctx context.Context, shard *manifest.Shard, file string) (*snapshot.State, error) {
	state, err := snapshot.Read(file, shard.Prefix, shard.RevisionFrom)
	if err != nil {
		return nil, err
	}
	if state.Latest < shard.RevisionFrom || state.Latest > shard.RevisionTo {
		return nil, fmt.Errorf("the snapshot of shard %s ends at revision %d, want one from %d to %d", shard.Name, state.Latest, shard.RevisionFrom, shard.RevisionTo)
	}
	var missing []string
	missed := 0
	err = b.Lines(ctx, shard.Inventory, func(line manifest.Line) {
		if line.LogicalCluster == "" || state.Remove(line.LogicalCluster) {
			return
		}
		if missed++; missed <= maxNamed {
			missing = append(missing, line.LogicalCluster)
		}
	})
	if err != nil {
		return nil, err
	}
	unexpected := state.LogicalClusters()
	if missed == 0 && len(unexpected) == 0 {
		return state, nil
	}
	return nil, fmt.Errorf("the snapshot of shard %s differs from its inventory: %d logical clusters are missing (%s), %d are unexpected (%s)",
		shard.Name, missed, strings.Join(missing, ", "), len(unexpected), strings.Join(unexpected[:min(len(unexpected), maxNamed)], ", "))
}
