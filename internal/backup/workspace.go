package backup

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/snapshot"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/internal/workspacerestore"
)

const (
	// leaseSeconds is how long a shard keeps what a program has brought that was killed.
	leaseSeconds = 60
	// reportInterval is how often the report of the shard is read, and answerTimeout how long the shard may report nothing new.
	reportInterval, answerTimeout = 500 * time.Millisecond, 3 * time.Minute
	// batchOps and batchBytes bound a transaction.
	batchOps, batchBytes = 100, 512 << 10
)

// RestoredWorkspace is a workspace that was restored.
type RestoredWorkspace struct {
	Shard, LogicalCluster string
	// Objects are the objects in it, the LogicalCluster included. LeftOut are those that expire.
	Objects, LeftOut int
	Bytes            int64
}

// RestoreWorkspace brings a workspace that was deleted back to its shard, which is one of those that are given, and runs. The directory is for the
// snapshots of the shards, one at a time. Nothing of the workspace is served before all of it is there. After an error, the shard removes what was copied.
func (b *Backup) RestoreWorkspace(ctx context.Context, shards []config.Shard, path, directory string, progress func(string)) (*RestoredWorkspace, error) {
	directory, err := os.MkdirTemp(directory, "workspace-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	searched, missing := []string{}, []string{}
	for n := range b.Manifest.Shards {
		saved := &b.Manifest.Shards[n]
		at := slices.IndexFunc(shards, func(shard config.Shard) bool { return shard.Name == saved.Name })
		if at < 0 {
			missing = append(missing, saved.Name)
			continue
		}
		if err := (snapshot.Owner{Prefix: shards[at].Prefix}).CheckPrefix(saved.Prefix); err != nil {
			return nil, fmt.Errorf("the snapshot of shard %s: %w", saved.Name, err)
		}
		progress(fmt.Sprintf("searching the snapshot of shard %s, of %d bytes", saved.Name, saved.Snapshot.ContentSize))
		file := filepath.Join(directory, "snapshot")
		if err := b.download(ctx, saved, file); err != nil {
			return nil, err
		}
		found, err := snapshot.FindWorkspace(file, saved.Prefix, path)
		if err != nil {
			return nil, fmt.Errorf("shard %s: %w", saved.Name, err)
		}
		if found != nil {
			return b.bringBack(ctx, shards[at], found, path, progress)
		}
		searched = append(searched, saved.Name)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("backup %s has no workspace %s on the shards %s; it also has the shards %s, which the configuration does not have", b.Manifest.ID, path, strings.Join(searched, ", "), strings.Join(missing, ", "))
	}
	return nil, fmt.Errorf("backup %s has no workspace %s: it did not exist at %s, or had another path", b.Manifest.ID, path, b.Manifest.CutStoppedAt.Format(time.RFC3339))
}

// bringBack hands a workspace to its shard, and waits until the shard serves it.
func (b *Backup) bringBack(ctx context.Context, shard config.Shard, found *snapshot.Workspace, path string, progress func(string)) (_ *RestoredWorkspace, err error) {
	client, err := snapshot.Connect(shard.CredentialsDirectory, shard.Endpoints...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	keys := found.Keys()
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	h := &handing{
		client: client, shard: shard, found: found, keys: workspacerestore.At(shard.Prefix), progress: progress,
		request: workspacerestore.Request{
			ID: workspacerestore.IDPrefix + hex.EncodeToString(random), Backup: b.Manifest.ID, Path: path, LogicalCluster: found.LogicalCluster, Parent: found.Parent,
			ParentUID: found.ParentUID, WorkspaceKey: found.Key, Keys: len(keys), Bytes: found.Bytes,
		},
	}
	if err := h.checkOwner(ctx); err != nil {
		return nil, err
	}
	lease, err := client.Grant(ctx, leaseSeconds)
	if err != nil {
		return nil, fmt.Errorf("writing to the etcd of shard %s: %w", shard.Name, err)
	}
	h.lease = lease.ID
	defer func() { // what was brought, whatever has happened
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseSeconds*time.Second)
		defer cancel()
		if _, revokeErr := client.Revoke(ended, lease.ID); revokeErr != nil && err == nil {
			progress(fmt.Sprintf("what was brought expires within %d seconds: %v", leaseSeconds, revokeErr))
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive, err := client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return nil, fmt.Errorf("writing to the etcd of shard %s: %w", shard.Name, err)
	}
	go func() {
		for range alive {
		}
		cancel(errors.New("the lease in etcd has ended"))
	}()
	if err := h.run(ctx, keys); err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		if errors.As(err, new(*uncertainError)) {
			return nil, fmt.Errorf("find out whether workspace %s is back; this program does not know it: %w", path, err)
		}
		return nil, fmt.Errorf("workspace %s was not restored, and shard %s keeps nothing of it: %w", path, shard.Name, err)
	}
	return &RestoredWorkspace{Shard: shard.Name, LogicalCluster: found.LogicalCluster, Objects: len(keys), LeftOut: found.Expiring, Bytes: found.Bytes}, nil
}

// handing hands a workspace to a shard.
type handing struct {
	client   *clientv3.Client
	shard    config.Shard
	found    *snapshot.Workspace
	keys     workspacerestore.Keys
	request  workspacerestore.Request
	lease    clientv3.LeaseID
	revision int64 // of the request
	progress func(string)
}

// checkOwner refuses an etcd that is not the one that was saved.
func (h *handing) checkOwner(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	owner, err := h.client.Get(timed, reservedkeys.Owner(h.shard.Prefix))
	if err != nil {
		return fmt.Errorf("reading the etcd of shard %s: %w", h.shard.Name, err)
	}
	got := ""
	if len(owner.Kvs) > 0 {
		got = string(owner.Kvs[0].Value)
	}
	if got != h.found.Owner {
		return fmt.Errorf("the etcd of shard %s belongs to %q, and in the backup to %q: a workspace comes back only to the installation that it was in", h.shard.Name, got, h.found.Owner)
	}
	return nil
}

func (h *handing) run(ctx context.Context, keys []string) error {
	if err := h.begin(ctx); err != nil {
		return err
	}
	h.progress(fmt.Sprintf("found logical cluster %s with %d objects, %d bytes; shard %s checks whether it can take it back", h.found.LogicalCluster, len(keys), h.found.Bytes, h.shard.Name))
	if err := h.await(ctx, workspacerestore.Ready); err != nil {
		return err
	}
	if err := h.bring(ctx, keys); err != nil {
		return err
	}
	h.request.Complete = true
	err := h.commit(ctx, clientv3.Compare(clientv3.ModRevision(h.keys.Request()), "=", h.revision))
	if err == nil {
		err = h.await(ctx, workspacerestore.Completed)
	}
	if err != nil { // a commit without an answer may have succeeded, too
		return h.withdraw(ctx, err)
	}
	return nil
}

// begin writes the request when no other restore of a workspace of the shard runs.
func (h *handing) begin(ctx context.Context) error {
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	for started, waits := time.Now(), false; ; waits = true {
		err := h.commit(ctx, clientv3.Compare(clientv3.CreateRevision(h.keys.Request()), "=", 0))
		switch {
		case !errors.Is(err, errCondition):
			return err
		case time.Since(started) > answerTimeout:
			return fmt.Errorf("another workspace of the shard is being restored since %s: try again later", answerTimeout)
		case !waits:
			h.progress(fmt.Sprintf("waiting for the end of another restore of a workspace of shard %s, or that one expires that was killed within the last %d seconds", h.shard.Name, leaseSeconds))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// uncertainError is returned if the shard may have restored the workspace.
type uncertainError struct{ error }

func (u *uncertainError) Unwrap() error { return u.error }

// withdraw ends the request, after which the shard opens nothing, and returns nil if it has been faster.
func (h *handing) withdraw(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseSeconds*time.Second)
	defer cancel()
	if err := h.deleteRequest(ctx); err != nil {
		return &uncertainError{errors.Join(why, err)}
	}
	report, err := h.report(ctx)
	switch {
	case err != nil:
		return &uncertainError{errors.Join(why, err)}
	case report.State == workspacerestore.Completed:
		return nil
	case report.State == workspacerestore.Failed:
		return why
	}
	// The report of the shard expires with the lease.
	restored, err := h.isRestored(ctx)
	switch {
	case err != nil:
		return &uncertainError{errors.Join(why, err)}
	case restored:
		return nil
	}
	return why
}

// deleteRequest deletes the request, and not that of another program.
func (h *handing) deleteRequest(ctx context.Context) error {
	for {
		found, err := h.client.Get(ctx, h.keys.Request())
		if err != nil || len(found.Kvs) == 0 {
			return err
		}
		var request workspacerestore.Request
		if err := json.Unmarshal(found.Kvs[0].Value, &request); err != nil || request.ID != h.request.ID {
			return err
		}
		response, err := h.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(h.keys.Request()), "=", found.Kvs[0].ModRevision)).
			Then(clientv3.OpDelete(h.keys.Request())).Commit()
		if err != nil || response.Succeeded {
			return err
		}
	}
}

// isRestored reports whether the Workspace exists, with the UID that it has in the backup.
func (h *handing) isRestored(ctx context.Context) (bool, error) {
	found, err := h.client.Get(ctx, h.found.Key)
	if err != nil || len(found.Kvs) == 0 {
		return false, err
	}
	saved := ""
	if err := h.found.Values([]string{h.found.Key}, func(_ string, value []byte) error { saved = uidOf(value); return nil }); err != nil {
		return false, err
	}
	if uid := uidOf(found.Kvs[0].Value); uid == "" || saved == "" {
		return false, errors.New("there is a Workspace of its name, which is encrypted in etcd")
	} else if uid != saved {
		return false, nil // it was created meanwhile
	}
	return true, nil
}

// uidOf returns the UID of a stored object, or "" if it is encrypted.
func uidOf(value []byte) string {
	var object struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(value, &object)
	return object.Metadata.UID
}

// errCondition is returned by commit if its condition does not hold.
var errCondition = errors.New("the request has ended: the shard was away for too long, or another program runs")

// commit writes the request.
func (h *handing) commit(ctx context.Context, condition clientv3.Cmp) error {
	content, err := json.Marshal(h.request)
	if err != nil {
		return err
	}
	response, err := h.client.Txn(ctx).If(condition).Then(clientv3.OpPut(h.keys.Request(), string(content), clientv3.WithLease(h.lease))).Commit()
	if err != nil {
		return err
	}
	if !response.Succeeded {
		return errCondition
	}
	h.revision = response.Header.Revision
	return nil
}

// bring writes the objects as they are in the backup.
func (h *handing) bring(ctx context.Context, keys []string) error {
	var ops []clientv3.Op
	size, done := 0, 0
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		response, err := h.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(h.keys.Request()), "=", h.revision)).Then(ops...).Commit()
		if err != nil {
			return err
		}
		if !response.Succeeded {
			return errors.New("the request has ended")
		}
		done += len(ops)
		ops, size = nil, 0
		h.progress(fmt.Sprintf("brought %d of %d objects", done, len(keys)+1))
		return nil
	}
	err := h.found.Values(append(slices.Clone(keys), h.found.Key), func(key string, value []byte) error {
		to := h.keys.Workspace()
		if key != h.found.Key {
			storage, _, name, _ := workspacerestore.SplitKey(h.shard.Prefix, key) // as they were found
			to = h.keys.Object(storage, name)
		}
		if len(ops) > 0 && size+len(value) > batchBytes || len(ops) == batchOps {
			if err := flush(); err != nil {
				return err
			}
		}
		ops, size = append(ops, clientv3.OpPut(to, string(value), clientv3.WithLease(h.lease))), size+len(value)
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// await waits until the shard reports a state.
func (h *handing) await(ctx context.Context, want workspacerestore.State) error {
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	var last workspacerestore.Report
	most, waitsFor := -1, "" // objects that were copied; a shard that tries again without getting further makes no progress
	for progressed := time.Now(); ; {
		report, err := h.report(ctx)
		switch {
		case err != nil:
			return err
		case report.State == workspacerestore.Failed:
			return errors.New(report.Message)
		case report.State == want:
			return nil
		case time.Since(progressed) > answerTimeout && waitsFor != "":
			return fmt.Errorf("the shard has tried for %s: %s", answerTimeout, waitsFor)
		case time.Since(progressed) > answerTimeout:
			return fmt.Errorf("the shard has not answered for %s: it needs a version that restores workspaces, the feature gate LogicalClusterMigration, and a replica that runs its controllers", answerTimeout)
		case report == last:
		case report.State == workspacerestore.Waiting:
			last, waitsFor = report, report.Message
			h.progress("the shard tries again: " + waitsFor)
		case report.State == workspacerestore.Copying:
			if last = report; report.Copied > most {
				most, progressed, waitsFor = report.Copied, time.Now(), ""
			}
			h.progress(fmt.Sprintf("the shard has copied %d of %d objects", report.Copied, h.request.Keys-1))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func (h *handing) report(ctx context.Context) (report workspacerestore.Report, err error) {
	found, err := h.client.Get(ctx, h.keys.Report())
	if err != nil || len(found.Kvs) == 0 {
		return report, err
	}
	if err := json.Unmarshal(found.Kvs[0].Value, &report); err != nil {
		return report, fmt.Errorf("decoding the report of the shard: %w", err)
	}
	if report.ID != h.request.ID || report.State == workspacerestore.Ready && h.request.Complete {
		return workspacerestore.Report{}, nil // of an earlier state
	}
	return report, nil
}
