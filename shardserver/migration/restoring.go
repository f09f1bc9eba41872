package migration

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspacerestore"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

const (
	// restoringInterval is how often the shard looks for the request to restore a workspace: one read of etcd.
	restoringInterval = 2 * time.Second
	// restoringPauses is how often the replicas of the shard are asked to hide a copy, each for fence.PauseTimeout.
	restoringPauses = 15
	// attemptLetters is the length of what tells one attempt from another one of the same restore.
	attemptLetters = 10
	// restoringPage is the number of objects that are read of etcd at once.
	restoringPage = 20
)

var (
	apiBindings = apisv1alpha2.Resource("apibindings")
	apiExports  = apisv1alpha2.Resource("apiexports")
	// apiResourceSchemas are what exports offer.
	apiResourceSchemas = apisv1alpha1.Resource("apiresourceschemas")
	// clusterReports are what other shards publish about logical clusters whose Workspaces they do not have.
	clusterReports = shardingv1alpha1.Resource("logicalclusterreports")
)

// restoringService takes back workspaces that were deleted: a program that reads a backup brings their objects into the etcd of this shard (package
// workspacerestore), and the service copies them to where they belong, as the destination of a move does. The copy is inert until it is complete, and
// opens by one transaction, which also stores the Workspace.
type restoringService struct {
	cfg Config
	reader
	stored      *storedClusters
	transfer    *transfer.Transfer
	destination *destinationService
	transformer storedTransformer
	exports     *storage.Reader[*apisv1alpha2.APIExport]
	schemas     *storage.Reader[*apisv1alpha1.APIResourceSchema]
	holders     *storage.Reader[*shardingv1alpha1.LogicalClusterReport]
	keys        workspacerestore.Keys
}

func newRestoringService(cfg Config, read reader, stored *storedClusters, keys *transfer.Transfer, destination *destinationService) *restoringService {
	return &restoringService{
		cfg: cfg, reader: read, stored: stored, transfer: keys, destination: destination, transformer: newStoredTransformer(cfg),
		exports: storage.NewReader[*apisv1alpha2.APIExport](cfg.Registry, apiExports).Global(),
		schemas: storage.NewReader[*apisv1alpha1.APIResourceSchema](cfg.Registry, apiResourceSchemas).Global(),
		holders: storage.NewReader[*shardingv1alpha1.LogicalClusterReport](cfg.Registry, clusterReports).Global(),
		keys:    workspacerestore.At(cfg.Prefix),
	}
}

// run serves requests until the context ends. It runs in one replica.
func (r *restoringService) run(ctx context.Context) {
	ticker := time.NewTicker(restoringInterval)
	defer ticker.Stop()
	for {
		if err := r.serve(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Serving the restore of a workspace")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// serve removes what restores that have ended have left, and serves the request that is there, if any.
func (r *restoringService) serve(ctx context.Context) error {
	found, err := r.cfg.Etcd.Txn(ctx).Then(
		clientv3.OpGet(r.keys.Claims(), clientv3.WithPrefix(), clientv3.WithLimit(restoringPage)),
		clientv3.OpGet(r.keys.Request()),
	).Commit()
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	get := func(i int) []*mvccpb.KeyValue { return found.Responses[i].GetResponseRange().Kvs }
	var failed []error
	blocked := map[string]error{}  // by logical cluster: those of others can be restored
	for _, claim := range get(0) { // nothing else runs in this process, and another replica cannot write any more after this
		if err := r.clean(ctx, claim); err != nil {
			failed, blocked[r.claimedBy(claim)] = append(failed, err), err
		}
	}
	if len(get(1)) == 0 {
		return errors.Join(failed...)
	}
	in := &incomingRestore{restoringService: r, revision: get(1)[0].ModRevision, lease: clientv3.LeaseID(get(1)[0].Lease)}
	if err := json.Unmarshal(get(1)[0].Value, &in.Request); err != nil {
		return errors.Join(append(failed, fmt.Errorf("decoding the request: %w", err))...)
	}
	report, err := in.reported(ctx)
	switch {
	case err != nil || report.IsFinal() || report.State == workspacerestore.Ready && !in.Complete:
	case blocked[in.LogicalCluster] != nil:
		err = in.report(ctx, workspacerestore.Report{State: workspacerestore.Waiting, Message: blocked[in.LogicalCluster].Error()})
	default:
		err = in.serve(ctx)
	}
	return errors.Join(append(failed, err)...)
}

// claimedBy returns the logical cluster of a claim.
func (r *restoringService) claimedBy(claim *mvccpb.KeyValue) string {
	return strings.TrimPrefix(string(claim.Key), r.keys.Claims())
}

// clean removes the copy of an attempt that has ended, unless it is open, and what is recorded of it. The replica that has made the attempt may still
// run, and its transactions may arrive late: without the key that all of them require, which is deleted first, none of them writes or opens anything.
func (r *restoringService) clean(ctx context.Context, claim *mvccpb.KeyValue) error {
	cluster, attempt := r.claimedBy(claim), string(claim.Value)
	name, err := logicalcluster.ParseName(cluster)
	if err != nil {
		return fmt.Errorf("cleaning up after the restore of %q: %w", cluster, err)
	}
	if err := r.whileClaimed(ctx, claim, clientv3.OpDelete(r.keys.Opening(cluster))); err != nil {
		return err
	}
	copied := &corev1alpha1.LogicalCluster{}
	copied.Annotations = map[string]string{logicalcluster.AnnotationKey: cluster, corev1alpha1.ArrivingAnnotationKey: attempt}
	if err := r.destination.drop(ctx, copied); err != nil {
		return fmt.Errorf("removing the copy of restore %s: %w", attempt, err)
	}
	forget, err := r.transfer.ForgetOp(transfer.Incoming{Cluster: name, UID: types.UID(attempt)})
	if err != nil {
		return err
	}
	return r.whileClaimed(ctx, claim, forget, clientv3.OpDelete(string(claim.Key)))
}

// whileClaimed writes if a claim has not changed since it was read.
func (r *restoringService) whileClaimed(ctx context.Context, claim *mvccpb.KeyValue, ops ...clientv3.Op) error {
	response, err := r.cfg.Etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(string(claim.Key)), "=", claim.ModRevision)).Then(ops...).Commit()
	if err == nil && !response.Succeeded {
		err = errors.New("another replica cleans up, too")
	}
	if err != nil {
		return fmt.Errorf("cleaning up after restore %s: %w", claim.Value, err)
	}
	return nil
}

// incomingRestore is a request that is served.
type incomingRestore struct {
	*restoringService
	workspacerestore.Request
	// revision is that of the request: after another one, or without it, nothing is restored.
	revision int64
	// lease is that of the program: reports end with it.
	lease clientv3.LeaseID

	cluster, parent logicalcluster.Name
}

// refusedRestore is an error that another attempt would end with, too.
type refusedRestore struct{ error }

func (r *refusedRestore) Unwrap() error { return r.error }

func refuseRestore(format string, args ...any) error {
	return &refusedRestore{fmt.Errorf(format, args...)}
}

func isRefused(err error) bool {
	return errors.As(err, new(*refusedRestore)) || errors.Is(err, errFull) || errors.Is(err, rpctypes.ErrNoSpace)
}

// serve checks a request, or restores what is there completely. A refusal ends the restore. Other errors are repeated while the program waits.
func (i *incomingRestore) serve(ctx context.Context) error {
	err := i.try(ctx)
	if err == nil || ctx.Err() != nil { // the next leader begins again
		return err
	}
	if i.Complete {
		if cleanErr := i.cleanAttempt(ctx); cleanErr != nil {
			return errors.Join(err, cleanErr) // repeated before anything is reported: a report says that nothing is left
		}
		// The transaction that opens the copy may have succeeded without an answer.
		if reported, readErr := i.reported(ctx); readErr != nil || reported.IsFinal() {
			return readErr
		}
	}
	if !isRefused(err) {
		return errors.Join(err, i.report(ctx, workspacerestore.Report{State: workspacerestore.Waiting, Message: err.Error()}))
	}
	klog.FromContext(ctx).Info("Did not restore a workspace", "path", i.Path, "backup", i.Backup, "err", err)
	return i.report(ctx, workspacerestore.Report{State: workspacerestore.Failed, Message: err.Error()})
}

// cleanAttempt removes what an attempt has written, if there is anything.
func (i *incomingRestore) cleanAttempt(ctx context.Context) error {
	found, err := i.cfg.Etcd.Get(ctx, i.keys.Claim(i.LogicalCluster))
	if err != nil || len(found.Kvs) == 0 {
		return err
	}
	return i.clean(ctx, found.Kvs[0])
}

func (i *incomingRestore) try(ctx context.Context) error {
	if err := i.check(ctx); err != nil {
		return err
	}
	if !i.Complete {
		return i.report(ctx, workspacerestore.Report{State: workspacerestore.Ready})
	}
	restored, err := i.readContent(ctx)
	if err != nil {
		return err
	}
	if err := i.report(ctx, workspacerestore.Report{State: workspacerestore.Copying}); err != nil {
		return err
	}
	return i.copy(ctx, restored)
}

// reported returns what was reported on the request.
func (i *incomingRestore) reported(ctx context.Context) (report workspacerestore.Report, err error) {
	found, err := i.cfg.Etcd.Get(ctx, i.keys.Report())
	if err != nil || len(found.Kvs) == 0 {
		return report, err
	}
	if err := json.Unmarshal(found.Kvs[0].Value, &report); err != nil {
		return report, fmt.Errorf("decoding the report: %w", err)
	}
	if report.ID != i.ID {
		return workspacerestore.Report{}, nil
	}
	return report, nil
}

// report stores a report, unless the request has ended or another one follows.
func (i *incomingRestore) report(ctx context.Context, report workspacerestore.Report) error {
	op, err := i.reportOp(report)
	if err != nil {
		return err
	}
	_, err = i.commit(ctx, nil, op)
	return err
}

func (i *incomingRestore) reportOp(report workspacerestore.Report) (clientv3.Op, error) {
	report.ID = i.ID
	content, err := json.Marshal(report)
	return clientv3.OpPut(i.keys.Report(), string(content), clientv3.WithLease(i.lease)), err
}

// errRequestEnded is returned if the program has ended.
var errRequestEnded = errors.New("the program that has requested the restore has ended, or what it found has changed meanwhile: run it again")

// commit writes while the request is there, and returns the revision.
func (i *incomingRestore) commit(ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op) (int64, error) {
	conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(i.keys.Request()), "=", i.revision))
	response, err := i.cfg.Etcd.Txn(ctx).If(conditions...).Then(ops...).Commit()
	if err != nil {
		return 0, err
	}
	if !response.Succeeded {
		return 0, errRequestEnded
	}
	return response.Header.Revision, nil
}

// attempt is what one try to copy a logical cluster has claimed.
type attempt struct {
	transfer.Incoming
	// revision is that of the LogicalCluster of the copy, and fence the conditions of all writes.
	revision int64
	fence    []clientv3.Cmp
}

// claim stores the LogicalCluster of a copy. What is written for it can be found by the key of the claim. Two replicas that both take themselves for the
// leader never write for the same attempt.
func (i *incomingRestore) claim(ctx context.Context) (*attempt, error) {
	versions, _, err := i.transfer.Manifest(ctx, i.cluster)
	if err != nil {
		return nil, err
	}
	if len(versions) > 0 {
		return nil, refuseRestore("shard %q has keys of logical cluster %q, the first of %s, without the logical cluster: delete them in etcd", i.cfg.Shard, i.cluster, versions[0].Resource)
	}
	id := i.ID + "-" + strings.ToLower(rand.Text()[:attemptLetters])
	claim, opening := i.keys.Claim(i.LogicalCluster), i.keys.Opening(i.LogicalCluster)
	revision, err := i.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(claim), "=", 0)}, clientv3.OpPut(claim, id), clientv3.OpPut(opening, id))
	if err != nil {
		return nil, err
	}
	out := &attempt{Incoming: transfer.Incoming{Cluster: i.cluster, UID: types.UID(id)}}
	allowed := clientv3.Compare(clientv3.ModRevision(opening), "=", revision)
	arriving := &storedCluster{object: newArriving(out.Incoming, "")}
	if arriving.revision, err = i.stored.put(ctx, i.cluster, arriving.object, 0, allowed); err != nil {
		return nil, err
	}
	if out.fence, err = i.stored.unchanged(i.cluster, arriving); err != nil {
		return nil, err
	}
	out.revision, out.fence = arriving.revision, append(out.fence, allowed)
	return out, nil
}

// copy copies the content, compares it, and opens the logical cluster.
func (i *incomingRestore) copy(ctx context.Context, restored *restoredContent) error {
	claimed, err := i.claim(ctx)
	if err != nil {
		return err
	}
	if err := i.pause(ctx, claimed.revision); err != nil {
		return err
	}
	writer, copied := i.transfer.NewWriter(claimed.Incoming, claimed.fence), 0
	err = i.eachEntry(ctx, func(page []transfer.Entry) error {
		if err := i.destination.checkSpace(); err != nil {
			return err
		}
		if err := writer.Store(ctx, page); err != nil {
			return err
		}
		copied += len(page)
		return i.report(ctx, workspacerestore.Report{State: workspacerestore.Copying, Copied: copied})
	})
	if err != nil {
		return err
	}
	if err := i.compare(ctx, claimed.Incoming); err != nil {
		return err
	}
	if err := i.cfg.Publication.awaitEndpoints(ctx, i.cluster); err != nil {
		return err
	}
	if err := i.open(ctx, claimed.fence, restored); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Restored a workspace", "path", i.Path, "cluster", i.cluster, "backup", i.Backup)
	if err := i.cleanAttempt(ctx); err != nil { // what is recorded: the copy is open, and the next look at requests repeats this
		klog.FromContext(ctx).Error(err, "Removing the records of a workspace that is restored")
	}
	return nil
}

// pause waits until all replicas hide the copy.
func (i *incomingRestore) pause(ctx context.Context, revision int64) (err error) {
	for range restoringPauses {
		if err = i.cfg.Fence.Pause(ctx, i.cluster, revision); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// compare reads the copy, and compares each value with that of the backup.
func (i *incomingRestore) compare(ctx context.Context, in transfer.Incoming) error {
	copied, err := i.transfer.Copied(ctx, in)
	if err != nil {
		return err
	}
	if len(copied)+1 != i.Keys { // the LogicalCluster
		return refuseRestore("the copy has %d objects, want %d", len(copied)+1, i.Keys)
	}
	return i.eachEntry(ctx, func(page []transfer.Entry) error {
		keys := make([]transfer.Key, len(page))
		for at, entry := range page {
			keys[at] = entry.Key
		}
		return i.transfer.Values(ctx, i.cluster, keys, func(at int, plain []byte) error {
			if !bytes.Equal(plain, page[at].Value) {
				return refuseRestore("an object of %s has another content than in the backup", keys[at].Resource)
			}
			return nil
		})
	})
}

// open stores the LogicalCluster and its Workspace in one transaction. From here on this shard serves both.
func (i *incomingRestore) open(ctx context.Context, fence []clientv3.Cmp, restored *restoredContent) error {
	key, err := i.stored.key(i.cluster)
	if err != nil {
		return err
	}
	parentKey, err := i.stored.key(i.parent)
	if err != nil {
		return err
	}
	cluster, err := i.transformer.encode(ctx, logicalClusters, key, restored.cluster)
	if err != nil {
		return err
	}
	workspace, err := i.transformer.encode(ctx, workspaces, i.WorkspaceKey, restored.workspace)
	if err != nil {
		return err
	}
	report, err := i.reportOp(workspacerestore.Report{State: workspacerestore.Completed, Copied: i.Keys})
	if err != nil {
		return err
	}
	if err := i.checkBindings(ctx, restored); err != nil { // an export may have changed since it was read
		return err
	}
	for range maxConflicts { // the LogicalCluster of the parent may change at any time
		parent, err := i.checkParent(ctx)
		if err != nil {
			return err
		}
		conditions := append([]clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(parentKey), "=", parent.revision), clientv3.Compare(clientv3.CreateRevision(i.WorkspaceKey), "=", 0),
		}, fence...)
		_, err = i.commit(ctx, conditions, clientv3.OpPut(key, string(cluster)), clientv3.OpPut(i.WorkspaceKey, string(workspace)), clientv3.OpDelete(i.keys.Opening(i.LogicalCluster)), report)
		if !errors.Is(err, errRequestEnded) {
			return err
		}
	}
	return errRequestEnded
}

// workspaceKey returns the key of a Workspace of this shard.
func (r *restoringService) workspaceKey(parent logicalcluster.Name, name string) (string, error) {
	resource, err := r.registry.Get(workspaces)
	if err != nil {
		return "", err
	}
	return path.Join("/", r.cfg.Prefix, resource.Prefix, parent.String(), name), nil
}
