package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/internal/nesting"
	"github.com/atoll-dev/atoll/internal/workspacerestore"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

const (
	// restoredEpochs is added to the epoch of a logical cluster that is restored: resource versions that clients have from before must expire, those from
	// moves between the backup and the deletion included.
	restoredEpochs = 16
	// maxNamed bounds what a report names.
	maxNamed = 10
	// unboundStorage is where custom resources are that are not bound: the workspace has their definition.
	unboundStorage = "customresources"
)

// restoredContent is what the backup has of a workspace.
type restoredContent struct {
	// cluster and workspace are the LogicalCluster and the Workspace that are to be stored.
	cluster, workspace map[string]any

	children []string
	bindings []*apisv1alpha2.APIBinding
	// exports and schemas are those of the workspace, by name: a workspace may bind its own exports.
	exports map[string]*apisv1alpha2.APIExport
	schemas map[string]*apisv1alpha1.APIResourceSchema
	// versions are the API versions in which objects of bound resources are stored, by storage.
	versions map[string]sets.Set[string]
}

// check refuses a request for which nothing needs to be read from the backup.
func (i *incomingRestore) check(ctx context.Context) (err error) {
	if i.cluster, err = logicalcluster.ParseName(i.LogicalCluster); err != nil {
		return refuseRestore("the request is invalid: %w", err)
	}
	if i.parent, err = logicalcluster.ParseName(i.Parent); err != nil {
		return refuseRestore("the request is invalid: %w", err)
	}
	name := path.Base(i.WorkspaceKey)
	key, err := i.workspaceKey(i.parent, name)
	if err != nil {
		return err
	}
	switch {
	case i.cfg.Held():
		return refuseRestore("shard %q was itself restored from a backup and is not released: release it first", i.cfg.Shard)
	case key != i.WorkspaceKey:
		return refuseRestore("the backup has the Workspace at %s, and this shard has its Workspaces below %s: it is the backup of another installation", i.WorkspaceKey, path.Dir(key))
	case !workspacerestore.IDPattern.MatchString(i.ID):
		return refuseRestore("got the ID %q, want one of the form %s", i.ID, workspacerestore.IDPattern)
	case i.Bytes > workspacerestore.MaxBytes:
		return refuseRestore("the workspace has %d bytes, and at most %d are restored: etcd would have them twice for a while", i.Bytes, workspacerestore.MaxBytes)
	}
	if err := i.destination.checkSpace(); err != nil {
		return err
	}
	if _, err := i.checkParent(ctx); err != nil {
		return err
	}
	existing, err := i.cfg.Etcd.Get(ctx, key, clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("reading the Workspace: %w", err)
	}
	if len(existing.Kvs) > 0 {
		return refuseRestore("workspace %s exists, or is still being deleted: a restore replaces nothing. Delete it and wait until it is gone, or keep it", i.Path)
	}
	stored, err := i.stored.get(ctx, i.cluster)
	if err != nil {
		return err
	}
	if stored != nil {
		return refuseRestore("logical cluster %q of workspace %s exists on shard %q without its Workspace: `kubectl kcp doctor --deep` names it", i.LogicalCluster, i.Path, i.cfg.Shard)
	}
	return i.checkElsewhere(ctx)
}

// checkElsewhere refuses a logical cluster that another shard has, or that a Workspace of another name names.
func (i *incomingRestore) checkElsewhere(ctx context.Context) error {
	all, err := i.workspaces.ListLatest(logicalcluster.With(ctx, i.parent), "", nil)
	if err != nil {
		return err
	}
	for _, workspace := range all {
		if workspace.Spec.Cluster == i.LogicalCluster {
			return refuseRestore("workspace %q has the logical cluster %q", workspace.Name, i.LogicalCluster)
		}
	}
	found, err := i.holders.List(logicalcluster.With(ctx, i.cluster), "", nil)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finding out whether another shard has the logical cluster: %w", err)
	}
	if len(found) > 0 {
		return refuseRestore("another shard still has logical cluster %q: wait until it is gone", i.LogicalCluster)
	}
	return nil
}

// checkParent returns the LogicalCluster of the parent, if it is the one of the backup and on this shard.
func (i *incomingRestore) checkParent(ctx context.Context) (*storedCluster, error) {
	parent, err := i.stored.get(ctx, i.parent)
	switch {
	case err != nil:
		return nil, err
	case parent == nil:
		return nil, refuseRestore("the parent of %s, logical cluster %q, does not exist on shard %q: restore the parent first, or move it back", i.Path, i.Parent, i.cfg.Shard)
	case parent.uid() != i.ParentUID:
		return nil, refuseRestore("the parent of %s is another workspace than in the backup", i.Path)
	case parent.isDeleting():
		return nil, refuseRestore("the parent of %s is being deleted", i.Path)
	case movestate.Of(parent.annotations()) != movestate.Open:
		return nil, refuseRestore("the parent of %s moves to another shard: wait until it has moved, and restore from a backup that was made after that", i.Path)
	}
	return parent, nil
}

// readContent reads all that the program has brought, and refuses what this shard cannot serve. It writes nothing.
func (i *incomingRestore) readContent(ctx context.Context) (*restoredContent, error) {
	out := &restoredContent{
		exports: map[string]*apisv1alpha2.APIExport{}, schemas: map[string]*apisv1alpha1.APIResourceSchema{}, versions: map[string]sets.Set[string]{},
	}
	own, err := i.stored.ownKey()
	if err != nil {
		return nil, err
	}
	builtin := map[string]*storage.Resource{}
	for _, resource := range i.registry.All() {
		builtin[resource.Prefix] = resource
	}
	keys := 0
	err = i.eachValue(ctx, func(entry transfer.Entry) error {
		keys++
		if entry.Key == own {
			return i.readCluster(out, entry.Value)
		}
		resource := builtin[entry.Resource]
		if err := i.destination.accepts.checkEntry(entry, resource); err != nil {
			return refuseRestore("the backup has an object of %s that this shard cannot serve: %w", entry.Resource, err)
		}
		return i.readEntry(out, entry, resource)
	})
	if err != nil {
		return nil, err
	}
	if out.cluster == nil || keys != i.Keys {
		return nil, refuseRestore("%d objects have arrived of %d: run the program again", keys, i.Keys)
	}
	if children := out.children; len(children) > 0 {
		return nil, refuseRestore("workspace %s has %d workspaces in the backup (%s): a workspace is restored without others below it, and with them it is not built", i.Path, len(children), strings.Join(children[:min(len(children), maxNamed)], ", "))
	}
	if err := i.checkBindings(ctx, out); err != nil {
		return nil, err
	}
	return out, i.readWorkspace(ctx, out)
}

// readEntry keeps what a check needs of an object.
func (i *incomingRestore) readEntry(out *restoredContent, entry transfer.Entry, resource *storage.Resource) error {
	if resource == nil {
		if path.Base(entry.Resource) == unboundStorage {
			return nil
		}
		var kind metav1.TypeMeta
		if err := json.Unmarshal(entry.Value, &kind); err != nil {
			return refuseRestore("decoding an object of %s: %w", entry.Resource, err)
		}
		if out.versions[entry.Resource] == nil {
			out.versions[entry.Resource] = sets.New[string]()
		}
		out.versions[entry.Resource].Insert(kind.GroupVersionKind().Version)
		return nil
	}
	switch resource.GVR.GroupResource() {
	case workspaces:
		out.children = append(out.children, entry.Name)
		return nil
	case apiBindings, apiExports, apiResourceSchemas:
	default:
		return nil
	}
	obj, err := i.destination.accepts.decode(entry, resource)
	if err != nil {
		return refuseRestore("decoding an object of %s: %w", entry.Resource, err)
	}
	switch typed := obj.(type) {
	case *apisv1alpha2.APIBinding:
		out.bindings = append(out.bindings, typed)
	case *apisv1alpha2.APIExport:
		out.exports[typed.Name] = typed
	case *apisv1alpha1.APIResourceSchema:
		out.schemas[typed.Name] = typed
	default:
		return fmt.Errorf("an object of %s is decoded as %T", entry.Resource, obj)
	}
	return nil
}

// readCluster reads the LogicalCluster, as it is to be stored.
func (i *incomingRestore) readCluster(out *restoredContent, plain []byte) error {
	typed := &corev1alpha1.LogicalCluster{}
	if err := errors.Join(nesting.CheckJSON(plain, nesting.Default().Stored), json.Unmarshal(plain, typed), exactjson.Unmarshal(plain, &out.cluster)); err != nil {
		return refuseRestore("decoding the LogicalCluster: %w", err)
	}
	epoch := min(Epoch(typed)+restoredEpochs, storage.MaxEpoch)
	switch err := checkLogicalCluster(i.cluster, typed); {
	case err != nil:
		return refuseRestore("the LogicalCluster of the backup cannot be served: %w. Use an earlier or a later backup", err)
	case movestate.Of(typed.Annotations) != movestate.Open, typed.Annotations[corev1alpha1.MigratingAnnotationKey] != "":
		return refuseRestore("workspace %s was moving between shards while the backup was made: use an earlier or a later backup", i.Path)
	case typed.Annotations[corev1alpha1.OwnerShardAnnotationKey] != "":
		return refuseRestore("the Workspace of %s was on another shard than its logical cluster, and only those of one shard are restored", i.Path)
	case typed.Spec.Owner.Cluster != i.Parent || typed.Spec.Owner.Name != path.Base(i.WorkspaceKey) || typed.Spec.Owner.Resource != workspaces.Resource:
		return refuseRestore("logical cluster %q belongs to another owner than Workspace %s", i.LogicalCluster, path.Base(i.WorkspaceKey))
	}
	u := &unstructured.Unstructured{Object: out.cluster}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey], annotations[corev1alpha1.EpochAnnotationKey] = i.LogicalCluster, strconv.FormatInt(epoch, 10)
	u.SetAnnotations(annotations)
	return nil
}

// readWorkspace reads the Workspace that has the LogicalCluster.
func (i *incomingRestore) readWorkspace(ctx context.Context, out *restoredContent) error {
	found, err := i.cfg.Etcd.Get(ctx, i.keys.Workspace())
	if err != nil {
		return fmt.Errorf("reading the Workspace: %w", err)
	}
	if len(found.Kvs) == 0 {
		return errRequestEnded
	}
	plain, err := i.transformer.decode(ctx, workspaces, i.WorkspaceKey, found.Kvs[0].Value)
	if err != nil {
		return err
	}
	resource, err := i.registry.Get(workspaces)
	if err != nil {
		return err
	}
	entry := transfer.Entry{Version: transfer.Version{Key: transfer.Key{Resource: resource.Prefix, Name: path.Base(i.WorkspaceKey)}}, Value: plain}
	if err := i.destination.accepts.checkEntry(entry, resource); err != nil {
		return refuseRestore("the backup has a Workspace that this shard cannot serve: %w", err)
	}
	typed := &tenancyv1alpha1.Workspace{}
	if err := errors.Join(json.Unmarshal(plain, typed), exactjson.Unmarshal(plain, &out.workspace)); err != nil {
		return refuseRestore("decoding the Workspace: %w", err)
	}
	owner, _, _ := unstructured.NestedString(out.cluster, "spec", "owner", "uid")
	switch {
	case typed.Spec.Cluster != i.LogicalCluster || string(typed.UID) != owner:
		return refuseRestore("the Workspace of the backup has the logical cluster %q, want %q: use an earlier or a later backup", typed.Spec.Cluster, i.LogicalCluster)
	case typed.DeletionTimestamp != nil:
		return refuseRestore("workspace %s was being deleted while the backup was made: use an earlier one", i.Path)
	}
	return nil
}

// eachValue passes all objects that the program has brought to a function.
func (i *incomingRestore) eachValue(ctx context.Context, visit func(transfer.Entry) error) error {
	prefix := i.keys.Content()
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from := prefix; ; {
		page, err := i.cfg.Etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(restoringPage))
		if err != nil {
			return fmt.Errorf("reading the objects: %w", err)
		}
		for _, kv := range page.Kvs {
			resource, name, ok := i.keys.ParseObject(string(kv.Key))
			if !ok {
				return refuseRestore("the program has written a key of another form: use that of the version of the shard")
			}
			key := transfer.Key{Resource: resource, Name: name}
			plain, err := i.transfer.Decode(ctx, i.cluster, key, kv.Value)
			if err != nil {
				return refuseRestore("%w: the encryption configuration of the shard needs the keys from the time of the backup", err)
			}
			if err := visit(transfer.Entry{Version: transfer.Version{Key: key, ModRevision: kv.ModRevision}, Value: plain}); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// eachEntry passes all objects but the LogicalCluster to a function, in pages.
func (i *incomingRestore) eachEntry(ctx context.Context, visit func([]transfer.Entry) error) error {
	own, err := i.stored.ownKey()
	if err != nil {
		return err
	}
	var page []transfer.Entry
	size := 0
	err = i.eachValue(ctx, func(entry transfer.Entry) error {
		if entry.Key == own {
			return nil
		}
		page, size = append(page, entry), size+len(entry.Value)
		if len(page) < restoringPage && size < transfer.MaxReadBytes {
			return nil
		}
		err := visit(page)
		page, size = nil, 0
		return err
	})
	if err == nil && len(page) > 0 {
		err = visit(page)
	}
	return err
}

// storedTransformer encrypts and decrypts single objects.
type storedTransformer struct{ all value.ResourceTransformers }

func newStoredTransformer(cfg Config) storedTransformer { return storedTransformer{cfg.Transformers} }

func (s storedTransformer) of(resource schema.GroupResource) value.Transformer {
	if s.all == nil {
		return identity.NewEncryptCheckTransformer()
	}
	return s.all.TransformerForResource(resource)
}

func (s storedTransformer) encode(ctx context.Context, resource schema.GroupResource, key string, object map[string]any) ([]byte, error) {
	plain, err := exactjson.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding an object of %s: %w", resource, err)
	}
	encrypted, err := s.of(resource).TransformToStorage(ctx, plain, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("encrypting an object of %s: %w", resource, err)
	}
	return encrypted, nil
}

func (s storedTransformer) decode(ctx context.Context, resource schema.GroupResource, key string, stored []byte) ([]byte, error) {
	plain, _, err := s.of(resource).TransformFromStorage(ctx, stored, value.DefaultContext(key))
	if err != nil {
		return nil, refuseRestore("decrypting an object of %s: %w: the encryption configuration of the shard needs the keys from the time of the backup", resource, err)
	}
	return plain, nil
}
