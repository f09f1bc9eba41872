package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// decode returns an object as its type.
func decode[T any](object *unstructured.Unstructured) (*T, error) {
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, out); err != nil {
		return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return out, nil
}

// knownConditions are those that checks read. Others are not kept: controllers of tenants may write them.
var knownConditions = sets.New(
	string(conditionsv1alpha1.Ready), string(corev1alpha1.ShardSchedulable), string(corev1alpha1.ShardPublished), string(corev1alpha1.ShardMovesKnown), string(corev1alpha1.ShardResourceLimitsApplied),
	string(migrationv1alpha1.Progressing),
	string(tenancyv1alpha1.WorkspaceScheduled), string(tenancyv1alpha1.WorkspaceMountReady), string(corev1alpha1.WorkspaceInitialized),
	string(corev1alpha1.APIBindingsInitialized), string(corev1alpha1.WorkspaceContentDeleted),
	string(apisv1alpha2.APIExportIdentityValid), string(apisv1alpha2.APIExportVirtualWorkspaceURLsReady), string(apisv1alpha1.PartitionValid),
	string(apisv1alpha2.APIExportValid), string(apisv1alpha2.InitialBindingCompleted), string(apisv1alpha2.BindingUpToDate),
	string(apisv1alpha2.PermissionClaimsValid), string(apisv1alpha2.PermissionClaimsApplied), string(apisv1alpha2.BindingResourceDeleteSuccess),
	operatorv1alpha1.ConditionStalled, operatorv1alpha1.ConditionEtcdAvailable, operatorv1alpha1.ConditionEtcdHealthy, operatorv1alpha1.ConditionRolledOut,
	operatorv1alpha1.ConditionSpecHonored, operatorv1alpha1.ConditionWorkspacesGone, operatorv1alpha1.ConditionCurrent, operatorv1alpha1.ConditionRetentionEnforced,
)

// knownReason is what reasons of the installation's own controllers look like.
var knownReason = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// conditionOf returns a condition without what could be a text of a tenant, and whether a check reads it.
func conditionOf(conditionType, status, reason, message string, since time.Time) (Condition, bool) {
	if !knownReason.MatchString(reason) {
		reason = ""
	}
	return Condition{Type: conditionType, Status: status, Reason: reason, Since: since, Message: message}, knownConditions.Has(conditionType)
}

func conditionsOf(conditions conditionsv1alpha1.Conditions) Conditions {
	var out Conditions
	for _, c := range conditions {
		if known, ok := conditionOf(string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time); ok {
			out = append(out, known)
		}
	}
	return out
}

func objectOf(object metav1.Object) Object {
	out := Object{
		Cluster: logicalcluster.Of(object).String(), Path: object.GetAnnotations()[corev1alpha1.LogicalClusterPathAnnotationKey],
		Name: object.GetName(), UID: string(object.GetUID()), Created: object.GetCreationTimestamp().Time,
	}
	if deleting := object.GetDeletionTimestamp(); deleting != nil {
		out.Deleting = &deleting.Time
	}
	return out
}

func shardOf(object *unstructured.Unstructured) (Shard, error) {
	shard, err := decode[corev1alpha1.Shard](object)
	if err != nil {
		return Shard{}, err
	}
	return Shard{
		Name: shard.Name, BaseURL: shard.Spec.BaseURL, VirtualWorkspaceURL: cmp.Or(shard.Spec.VirtualWorkspaceURL, shard.Spec.BaseURL),
		Created: shard.CreationTimestamp.Time, Conditions: conditionsOf(shard.Status.Conditions),
	}, nil
}

func moveOf(object *unstructured.Unstructured) (Move, error) {
	migration, err := decode[migrationv1alpha1.LogicalClusterMigration](object)
	if err != nil {
		return Move{}, err
	}
	return Move{
		Name: migration.Name, LogicalCluster: migration.Spec.LogicalCluster, From: migration.Status.OriginShard, To: migration.Spec.DestinationShard,
		Phase: string(migration.Status.Phase), Conditions: conditionsOf(migration.Status.Conditions),
	}, nil
}

func workspaceOf(object *unstructured.Unstructured) (Workspace, error) {
	workspace, err := decode[tenancyv1alpha1.Workspace](object)
	if err != nil {
		return Workspace{}, err
	}
	out := Workspace{
		Object: objectOf(workspace), Phase: string(workspace.Status.Phase), LogicalCluster: workspace.Spec.Cluster, IsMount: workspace.Spec.Mount != nil,
		Conditions: conditionsOf(workspace.Status.Conditions),
	}
	for _, initializer := range workspace.Status.Initializers {
		out.Initializers = append(out.Initializers, string(initializer))
	}
	for _, terminator := range workspace.Status.Terminators {
		out.Terminators = append(out.Terminators, string(terminator))
	}
	return out, nil
}

func logicalClusterOf(shard string, object *unstructured.Unstructured) (LogicalCluster, error) {
	cluster, err := decode[corev1alpha1.LogicalCluster](object)
	if err != nil {
		return LogicalCluster{}, err
	}
	out := LogicalCluster{Object: objectOf(cluster), Shard: shard}
	for _, moving := range []string{corev1alpha1.MigratingAnnotationKey, corev1alpha1.MovedToAnnotationKey, corev1alpha1.ArrivingAnnotationKey} {
		if cluster.Annotations[moving] != "" {
			out.IsMoving = true
		}
	}
	if owner := cluster.Spec.Owner; owner != nil && owner.Resource == "workspaces" {
		out.OwnerCluster, out.OwnerName, out.OwnerUID = owner.Cluster, owner.Name, string(owner.UID)
	}
	return out, nil
}

func exportOf(object *unstructured.Unstructured) (Export, error) {
	export, err := decode[apisv1alpha2.APIExport](object)
	if err != nil {
		return Export{}, err
	}
	return Export{Object: objectOf(export), IdentityHash: export.Status.IdentityHash, Conditions: conditionsOf(export.Status.Conditions)}, nil
}

func sliceOf(object *unstructured.Unstructured, shards []Shard) (EndpointSlice, error) {
	slice, err := decode[apisv1alpha1.APIExportEndpointSlice](object)
	if err != nil {
		return EndpointSlice{}, err
	}
	out := EndpointSlice{Object: objectOf(slice), Conditions: conditionsOf(slice.Status.Conditions)}
	for _, endpoint := range slice.Status.APIExportEndpoints {
		at := slices.IndexFunc(shards, func(shard Shard) bool { return strings.HasPrefix(endpoint.URL, shard.virtualWorkspaces()+"/") })
		if at >= 0 {
			out.Bases = append(out.Bases, shards[at].virtualWorkspaces())
			continue
		}
		out.Foreign++
		if host := hostOf(endpoint.URL); !slices.Contains(out.ForeignHosts, host) {
			out.ForeignHosts = append(out.ForeignHosts, host)
		}
	}
	return out, nil
}

// virtualWorkspaces returns the start of the URLs of virtual workspaces.
func (s Shard) virtualWorkspaces() string { return strings.TrimSuffix(s.VirtualWorkspaceURL, "/") }

// hostOf returns scheme and host of a URL.
func hostOf(endpoint string) string {
	parsed, err := url.Parse(endpoint)
	if err != nil {
		return "(not a URL)"
	}
	return parsed.Scheme + "://" + parsed.Host
}

func bindingOf(object *unstructured.Unstructured) (Binding, error) {
	binding, err := decode[apisv1alpha2.APIBinding](object)
	if err != nil {
		return Binding{}, err
	}
	out := Binding{
		Object: objectOf(binding), Phase: string(binding.Status.Phase), ExportCluster: binding.Status.APIExportClusterName, Conditions: conditionsOf(binding.Status.Conditions),
	}
	if binding.Spec.Reference.Export != nil {
		out.ExportName = binding.Spec.Reference.Export.Name
	}
	for _, resource := range binding.Status.BoundResources {
		if !slices.Contains(out.IdentityHashes, resource.Schema.IdentityHash) {
			out.IdentityHashes = append(out.IdentityHashes, resource.Schema.IdentityHash)
		}
	}
	return out, nil
}

// hostObjectOf reads what all kinds of the operator have.
func hostObjectOf(object *unstructured.Unstructured) (HostObject, error) {
	conditions, err := hostConditions(object)
	observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	out := HostObject{
		Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), Created: object.GetCreationTimestamp().Time, Changed: object.GetCreationTimestamp().Time,
		Generation: object.GetGeneration(), ObservedGeneration: observed, Conditions: conditions,
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(out.Changed) {
			out.Changed = entry.Time.Time
		}
	}
	if deleting := object.GetDeletionTimestamp(); deleting != nil {
		out.Deleting = &deleting.Time
	}
	return out, err
}

func hostConditions(object *unstructured.Unstructured) (Conditions, error) {
	list, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	var conditions []metav1.Condition
	if err := json.Unmarshal(text, &conditions); err != nil {
		return nil, fmt.Errorf("the conditions of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	var out Conditions
	for _, c := range conditions {
		if known, ok := conditionOf(c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time); ok {
			out = append(out, known)
		}
	}
	return out, nil
}

func hostCertificateOf(object *unstructured.Unstructured) (HostCertificate, error) {
	conditions, err := hostConditions(object)
	out := HostCertificate{Namespace: object.GetNamespace(), Name: object.GetName(), Conditions: conditions}
	notBefore, _, _ := unstructured.NestedString(object.Object, "status", "notBefore")
	notAfter, _, _ := unstructured.NestedString(object.Object, "status", "notAfter")
	if until, parseErr := time.Parse(time.RFC3339, notAfter); parseErr == nil {
		from, _ := time.Parse(time.RFC3339, notBefore) // without it, the warning is that of certificates whose start is not known
		out.Certificate = &Certificate{NotBefore: from, NotAfter: until}
	}
	renewalTime, _, _ := unstructured.NestedString(object.Object, "status", "renewalTime")
	if renewal, parseErr := time.Parse(time.RFC3339, renewalTime); parseErr == nil {
		out.Renewal = &renewal
	}
	return out, err
}

// leaseOf returns the Lease of an operator; false if no operator has held it yet.
func leaseOf(object *unstructured.Unstructured) (OperatorLease, bool, error) {
	lease, err := decode[coordinationv1.Lease](object)
	if err != nil || lease.Spec.RenewTime == nil {
		return OperatorLease{}, false, err
	}
	seconds := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))
	return OperatorLease{Namespace: lease.Namespace, Name: lease.Name, Renewed: lease.Spec.RenewTime.Time, Duration: seconds * time.Second}, true, nil
}

func backupOf(object *unstructured.Unstructured) (Backup, error) {
	backup, err := decode[operatorv1alpha1.Backup](object)
	if err != nil {
		return Backup{}, err
	}
	conditions, err := hostConditions(object)
	out := Backup{
		Namespace: backup.Namespace, Name: backup.Name, RootShard: backup.Spec.RootShardRef.Name, Phase: string(backup.Status.Phase),
		Created: backup.CreationTimestamp.Time, Conditions: conditions,
	}
	if backup.Status.StartedAt != nil {
		out.Started = &backup.Status.StartedAt.Time
	}
	return out, err
}
