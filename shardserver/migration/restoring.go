package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

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
	// restoringPage is the number of objects that are read of etcd at once.
	restoringPage = 20
)

var (
	apiBindings = apisv1alpha2.Resource("apibindings")
	apiExports  = apisv1alpha2.Resource("apiexports")
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
	holders     *storage.Reader[*shardingv1alpha1.LogicalClusterReport]
	keys        workspacerestore.Keys
}

func newRestoringService(cfg Config, read reader, stored *storedClusters, keys *transfer.Transfer, destination *destinationService) *restoringService {
	return &restoringService{
		cfg: cfg, reader: read, stored: stored, transfer: keys, destination: destination, transformer: newStoredTransformer(cfg),
		exports: storage.NewReader[*apisv1alpha2.APIExport](cfg.Registry, apiExports).Global(),
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
	for _, claim := range get(0) { // nothing else runs in this process, and another replica cannot write any more after this
		if err := r.clean(ctx, strings.TrimPrefix(string(claim.Key), r.keys.Claims()), string(claim.Value)); err != nil {
			return err
		}
	}
	if len(get(1)) == 0 {
		return nil
	}
	in := &incomingRestore{restoringService: r, revision: get(1)[0].ModRevision, lease: clientv3.LeaseID(get(1)[0].Lease)}
	if err := json.Unmarshal(get(1)[0].Value, &in.Request); err != nil {
		return fmt.Errorf("decoding the request: %w", err)
	}
	report, err := in.reported(ctx)
	if err != nil || report.IsFinal() || report.State == workspacerestore.Ready && !in.Complete {
		return err
	}
	return in.serve(ctx)
}

// clean removes the copy of a restore that has ended, unless it is open, and what is recorded of it.
func (r *restoringService) clean(ctx context.Context, cluster, id string) error {
	name, err := logicalcluster.ParseName(cluster)
	if err != nil {
		return fmt.Errorf("cleaning up after the restore of %q: %w", cluster, err)
	}
	in := transfer.Incoming{Cluster: name, UID: types.UID(id)}
	copied := &corev1alpha1.LogicalCluster{}
	copied.Annotations = map[string]string{logicalcluster.AnnotationKey: cluster, corev1alpha1.ArrivingAnnotationKey: id}
	if err := r.destination.drop(ctx, copied); err != nil {
		return fmt.Errorf("removing the copy of restore %s: %w", id, err)
	}
	if err := r.transfer.Forget(ctx, in); err != nil {
		return err
	}
	if _, err := r.cfg.Etcd.Delete(ctx, r.keys.Claim(cluster)); err != nil {
		return fmt.Errorf("cleaning up after restore %s: %w", id, err)
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

// serve checks a request, or restores what is there completely. What fails is reported, and the program decides whether it tries again.
func (i *incomingRestore) serve(ctx context.Context) error {
	err := i.attempt(ctx)
	if err == nil || ctx.Err() != nil { // the next leader begins again
		return err
	}
	if i.Complete && !i.cluster.Empty() {
		if cleanErr := i.clean(ctx, i.LogicalCluster, i.ID); cleanErr != nil {
			return errors.Join(err, cleanErr) // repeated before anything is reported: a report says that nothing is left
		}
		// The transaction that opens the copy may have succeeded without an answer.
		if reported, readErr := i.reported(ctx); readErr != nil || reported.IsFinal() {
			return readErr
		}
	}
	klog.FromContext(ctx).Info("Did not restore a workspace", "path", i.Path, "backup", i.Backup, "reason", err.Error())
	return i.report(ctx, workspacerestore.Report{State: workspacerestore.Failed, Message: err.Error()})
}

func (i *incomingRestore) attempt(ctx context.Context) error {
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

// claim stores the LogicalCluster of a copy. What is written for it can be found by the key of the claim.
func (i *incomingRestore) claim(ctx context.Context, in transfer.Incoming) (*storedCluster, error) {
	versions, _, err := i.transfer.Manifest(ctx, i.cluster)
	if err != nil {
		return nil, err
	}
	if len(versions) > 0 {
		return nil, fmt.Errorf("shard %q has keys of logical cluster %q, the first of %s, without the logical cluster: delete them in etcd", i.cfg.Shard, i.cluster, versions[0].Resource)
	}
	key := i.keys.Claim(i.LogicalCluster)
	revision, err := i.commit(ctx, nil, clientv3.OpPut(key, i.ID))
	if err != nil {
		return nil, err
	}
	out := &storedCluster{object: newArriving(in, "")}
	// Without the claim, another leader has removed what this one has written.
	out.revision, err = i.stored.put(ctx, i.cluster, out.object, 0, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
	return out, err
}

// copy copies the content, compares it, and opens the logical cluster.
func (i *incomingRestore) copy(ctx context.Context, restored *restoredContent) error {
	in := transfer.Incoming{Cluster: i.cluster, UID: types.UID(i.ID)}
	claimed, err := i.claim(ctx, in)
	if err != nil {
		return err
	}
	if err := i.pause(ctx, claimed.revision); err != nil {
		return err
	}
	fence, err := i.stored.unchanged(in.Cluster, claimed)
	if err != nil {
		return err
	}
	writer, copied := i.transfer.NewWriter(in, fence), 0
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
	if err := i.compare(ctx); err != nil {
		return err
	}
	if err := i.cfg.Publication.awaitEndpoints(ctx, i.cluster); err != nil {
		return err
	}
	if err := i.open(ctx, fence, restored); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Restored a workspace", "path", i.Path, "cluster", i.cluster, "backup", i.Backup)
	if err := i.clean(ctx, i.LogicalCluster, i.ID); err != nil { // what is recorded: the copy is open, and the next look at requests repeats this
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
func (i *incomingRestore) compare(ctx context.Context) error {
	copied, err := i.transfer.Copied(ctx, transfer.Incoming{Cluster: i.cluster, UID: types.UID(i.ID)})
	if err != nil {
		return err
	}
	if len(copied)+1 != i.Keys { // the LogicalCluster
		return fmt.Errorf("the copy has %d objects, want %d", len(copied)+1, i.Keys)
	}
	return i.eachEntry(ctx, func(page []transfer.Entry) error {
		keys := make([]transfer.Key, len(page))
		for at, entry := range page {
			keys[at] = entry.Key
		}
		return i.transfer.Values(ctx, i.cluster, keys, func(at int, plain []byte) error {
			if !bytes.Equal(plain, page[at].Value) {
				return fmt.Errorf("an object of %s has another content than in the backup", keys[at].Resource)
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
	for range maxConflicts { // the LogicalCluster of the parent may change at any time
		parent, err := i.checkParent(ctx)
		if err != nil {
			return err
		}
		conditions := append([]clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(parentKey), "=", parent.revision), clientv3.Compare(clientv3.CreateRevision(i.WorkspaceKey), "=", 0),
		}, fence...)
		_, err = i.commit(ctx, conditions, clientv3.OpPut(key, string(cluster)), clientv3.OpPut(i.WorkspaceKey, string(workspace)), report)
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
