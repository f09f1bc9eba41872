package migration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/nesting"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// acceptance decides which objects of an origin a destination stores. The origin may be compromised: objects that it adds pass no
// admission, and the destination serves them together with those of other tenants.
type acceptance struct {
	registry *storage.Registry
	decoder  runtime.Decoder
}

func newAcceptance(registry *storage.Registry) *acceptance {
	return &acceptance{registry: registry, decoder: legacyscheme.Codecs.DecoderToVersion(
		nesting.NewChecker(legacyscheme.Scheme).Decoder(legacyscheme.Codecs.UniversalDeserializer(), nesting.Default().Stored), runtime.InternalGroupVersioner)}
}

// check returns an error unless a response has only what was requested, and this shard can serve it. A response without any progress
// is an error, because the destination would repeat the request without end.
func (a *acceptance) check(wanted []transfer.Key, response *entriesResponse) error {
	open := make(map[transfer.Key]bool, len(wanted))
	for _, key := range wanted {
		open[key] = true
	}
	take := func(key transfer.Key) error {
		if !open[key] {
			return fmt.Errorf("the origin answers with a key of %s that was not requested", key.Resource)
		}
		delete(open, key)
		return nil
	}
	for _, key := range response.Rest {
		if err := take(key); err != nil {
			return err
		}
	}
	if len(response.Rest) >= len(wanted) {
		return errors.New("the origin answers with none of the objects that were requested")
	}
	builtin := map[string]*storage.Resource{}
	for _, resource := range a.registry.All() {
		builtin[resource.Prefix] = resource
	}
	for _, entry := range response.Entries {
		if err := take(entry.Key); err != nil {
			return err
		}
		if err := a.checkEntry(entry, builtin[entry.Resource]); err != nil {
			return fmt.Errorf("the origin has an object of %s that this shard does not store: %w", entry.Resource, err)
		}
	}
	return nil
}

// checkEntry returns an error unless the value is an object that its key names, which this shard can read: one that it cannot read
// would end the lists of its resource, over all logical clusters. resource is nil for custom resources.
func (a *acceptance) checkEntry(entry transfer.Entry, resource *storage.Resource) error {
	obj, err := a.decode(entry, resource)
	if err != nil {
		return err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	name := accessor.GetName()
	if accessor.GetNamespace() != "" {
		name = accessor.GetNamespace() + "/" + name
	}
	switch {
	case name != entry.Name:
		return errors.New("its name is not that of its key")
	case resource != nil && resource.Namespaced != (accessor.GetNamespace() != ""):
		return errors.New("its scope is not that of its kind")
	case hasPathOfRoot(accessor):
		return fmt.Errorf("it has the annotation %s of %s", logicalcluster.PathAnnotationKey, logicalcluster.Root)
	case resource != nil && resource.GVR.GroupResource() == logicalClusters:
		return errors.New("the origin hands the LogicalCluster over at the end")
	}
	if migration, ok := obj.(*migrationv1alpha1.LogicalClusterMigration); ok && !hasEnded(migration) {
		return fmt.Errorf("migration %q has not ended", migration.Name) // it would move logical clusters of this shard
	}
	return nil
}

func (a *acceptance) decode(entry transfer.Entry, resource *storage.Resource) (runtime.Object, error) {
	if resource == nil {
		if err := nesting.CheckJSON(entry.Value, nesting.Default().Stored); err != nil {
			return nil, err
		}
		obj, kind, err := crdstorage.Codec.Decode(entry.Value, nil, nil)
		if err != nil {
			return nil, err
		}
		if group, _, _ := strings.Cut(strings.TrimPrefix(entry.Resource, "/"), "/"); kind.Group != group || kind.Kind == "" || kind.Version == "" {
			return nil, errors.New("its kind is not one of its resource")
		}
		return obj, nil
	}
	creater, ok := resource.Store.(interface{ New() runtime.Object })
	if !ok {
		return nil, errors.New("its resource is not stored")
	}
	into := creater.New()
	obj, _, err := a.decoder.Decode(entry.Value, nil, into)
	if err != nil {
		return nil, err
	}
	if obj != into {
		return nil, errors.New("its kind is not that of its resource")
	}
	return obj, nil
}

// hasPathOfRoot reports whether an object has the path by which all users resolve exports and workspace types of root.
func hasPathOfRoot(obj metav1.Object) bool {
	return obj.GetAnnotations()[logicalcluster.PathAnnotationKey] == logicalcluster.Root.String()
}

// parseHanded returns the LogicalCluster that an origin has handed over, with annotations, if this shard can serve it. Controllers and
// views act on the fields that an origin could choose: initializers act as the creator of a workspace, for example.
func parseHanded(cluster logicalcluster.Name, handed *handOverResponse) (map[string]any, error) {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("the origin has handed over a LogicalCluster that this shard cannot serve: %w", fmt.Errorf(format, args...))
	}
	if err := nesting.CheckJSON(handed.Cluster, nesting.Default().Stored); err != nil {
		return nil, invalid("%w", err)
	}
	object, typed := map[string]any{}, corev1alpha1.LogicalCluster{}
	if err := exactjson.Unmarshal(handed.Cluster, &object); err != nil {
		return nil, invalid("%w", err)
	}
	if err := json.Unmarshal(handed.Cluster, &typed); err != nil {
		return nil, invalid("%w", err)
	}
	switch err := checkLogicalCluster(cluster, &typed); {
	case err != nil:
		return nil, invalid("%w", err)
	case handed.Epoch < 1:
		return nil, invalid("its epoch is %d", handed.Epoch)
	case handed.ParentShard == "":
		return nil, invalid("it does not say which shard has the Workspace")
	}
	return object, nil
}

// checkLogicalCluster refuses a LogicalCluster that this shard cannot serve.
func checkLogicalCluster(cluster logicalcluster.Name, typed *corev1alpha1.LogicalCluster) error {
	switch phase := typed.Status.Phase; {
	case typed.APIVersion != corev1alpha1.SchemeGroupVersion.String() || typed.Kind != "LogicalCluster" || typed.Name != corev1alpha1.LogicalClusterName || typed.Namespace != "":
		return fmt.Errorf("it is %s %q", typed.Kind, typed.Name)
	case !logicalcluster.Of(typed).Empty() && logicalcluster.Of(typed) != cluster:
		return errors.New("it is that of another logical cluster")
	case typed.UID == "" || typed.Spec.Owner == nil:
		return errors.New("it has no UID or no owner")
	case typed.DeletionTimestamp != nil || phase != corev1alpha1.LogicalClusterPhaseReady && phase != corev1alpha1.LogicalClusterPhaseInactive && phase != corev1alpha1.LogicalClusterPhaseUnavailable:
		return fmt.Errorf("it is in phase %q, or is being deleted", phase)
	case len(typed.Status.Initializers) > 0:
		return errors.New("it has initializers")
	case hasPathOfRoot(typed):
		return fmt.Errorf("it has the path of %s", logicalcluster.Root)
	}
	return nil
}
