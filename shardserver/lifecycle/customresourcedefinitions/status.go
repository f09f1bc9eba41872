package customresourcedefinitions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// fieldManager is the field manager of the status of definitions.
const fieldManager = "kcp-definitions"

// statusController computes the status of all definitions of one group in one logical cluster: its keys are groups. So
// names are never accepted concurrently. Names of resources that the logical cluster binds are not accepted.
type statusController struct {
	served *crdregistry.Registry
	reader *storage.Reader[*apiextensions.CustomResourceDefinition]
	client metadata.Interface
}

func newStatusController(cfg Config, reader *storage.Reader[*apiextensions.CustomResourceDefinition]) controller.Controller {
	c := &statusController{served: cfg.Definitions, reader: reader, client: cfg.Clients.Metadata}
	return controller.Controller{
		Name: "definition-status",
		Sources: []controller.Source{
			{Resource: definitions, MapFunc: groupKey},
			{Resource: apisv1alpha2.Resource("apibindings"), MapFunc: boundGroupKeys},
		},
		Reconcile: c.reconcile,
	}
}

func groupKey(event watch.Event) []controller.Request {
	definition, ok := event.Object.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil
	}
	return []controller.Request{{ClusterName: logicalcluster.Of(definition), Name: definition.Spec.Group}}
}

// boundGroupKeys maps a change of a binding to the groups that it binds: it may release names. A new one does not.
func boundGroupKeys(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Added {
		return nil
	}
	groups := sets.New[string]()
	for _, bound := range binding.Status.BoundResources {
		groups.Insert(bound.Group)
	}
	keys := make([]controller.Request, 0, len(groups))
	for group := range groups {
		keys = append(keys, controller.Request{ClusterName: logicalcluster.Of(binding), Name: group})
	}
	return keys
}

func (c *statusController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	group, err := c.group(ctx, key.Name, c.reader.List)
	if err != nil || len(outdated(group)) == 0 {
		return controller.Result{}, err
	}
	if key.ClusterName != logicalcluster.BoundCRDs && slices.ContainsFunc(outdated(group), func(d *apiextensions.CustomResourceDefinition) bool { return hasContention(d, group) }) {
		// The cache may not have the last accepted names yet.
		if group, err = c.group(ctx, key.Name, c.reader.ListLatest); err != nil {
			return controller.Result{}, err
		}
	}
	bound, err := c.served.ListBoundNames(ctx, key.Name)
	if err != nil {
		return controller.Result{}, fmt.Errorf("listing the bound resources of group %s: %w", key.Name, err)
	}
	for _, definition := range outdated(group) {
		others := acceptedNamesExcept(group, definition.Name)
		for _, names := range bound {
			others.add(names)
		}
		if key.ClusterName == logicalcluster.BoundCRDs { // nothing is served there, and conflicts are reported on bindings
			others = nameSet{}
		}
		updated := computeStatus(definition, others)
		if equality.Semantic.DeepEqual(updated.Status, definition.Status) {
			continue
		}
		if err := writeStatus(ctx, c.client, updated, nil); err != nil {
			return controller.Result{}, err
		}
		group[slices.Index(group, definition)] = updated
	}
	return controller.Result{}, nil
}

// group lists the definitions of a group, the oldest first: it takes precedence in accepting names.
func (c *statusController) group(ctx context.Context, name string, list func(context.Context, string, labels.Selector) ([]*apiextensions.CustomResourceDefinition, error)) ([]*apiextensions.CustomResourceDefinition, error) {
	all, err := list(ctx, "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the definitions of group %s: %w", name, err)
	}
	group := slices.DeleteFunc(all, func(d *apiextensions.CustomResourceDefinition) bool { return d.Spec.Group != name })
	slices.SortStableFunc(group, func(a, b *apiextensions.CustomResourceDefinition) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return group, nil
}

// outdated returns the definitions whose status may have to change. It is cheap, as every event calls it for the group.
func outdated(group []*apiextensions.CustomResourceDefinition) []*apiextensions.CustomResourceDefinition {
	var found []*apiextensions.CustomResourceDefinition
	for _, definition := range group {
		if !equality.Semantic.DeepEqual(definition.Spec.Names, definition.Status.AcceptedNames) ||
			!apiextensions.IsCRDConditionTrue(definition, apiextensions.NamesAccepted) ||
			!apiextensions.IsCRDConditionTrue(definition, apiextensions.Established) ||
			!conditionUpToDate(definition, apiextensions.KubernetesAPIApprovalPolicyConformant, apiApproval(definition)) ||
			!conditionUpToDate(definition, apiextensions.NonStructuralSchema, nonStructural(definition)) {
			found = append(found, definition)
		}
	}
	return found
}

func conditionUpToDate(definition *apiextensions.CustomResourceDefinition, kind apiextensions.CustomResourceDefinitionConditionType, want *apiextensions.CustomResourceDefinitionCondition) bool {
	return apiextensions.IsCRDConditionEquivalent(want, apiextensions.FindCRDCondition(definition, kind))
}

// writeStatus patches conditions and accepted names only, so that the schemas are not transferred. It replaces the
// finalizers, unless they are nil. It fails with a conflict if the definition has changed; a deleted definition is no
// error.
func writeStatus(ctx context.Context, client metadata.Interface, updated *apiextensions.CustomResourceDefinition, finalizers []string) error {
	var status apiextensionsv1.CustomResourceDefinitionStatus
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinitionStatus_To_v1_CustomResourceDefinitionStatus(&updated.Status, &status, nil); err != nil {
		return fmt.Errorf("converting the status of definition %s: %w", updated.Name, err)
	}
	meta := map[string]any{"uid": updated.UID, "resourceVersion": updated.ResourceVersion}
	if finalizers != nil {
		meta["finalizers"] = finalizers
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": meta,
		"status": map[string]any{"conditions": status.Conditions, "acceptedNames": map[string]any{ // null removes a field
			"plural": status.AcceptedNames.Plural, "singular": status.AcceptedNames.Singular,
			"kind": status.AcceptedNames.Kind, "listKind": status.AcceptedNames.ListKind,
			"shortNames": status.AcceptedNames.ShortNames, "categories": status.AcceptedNames.Categories,
		}},
	})
	if err != nil {
		return fmt.Errorf("encoding the status of definition %s: %w", updated.Name, err)
	}
	_, err = client.Resource(definitions.WithVersion(apiextensionsv1.SchemeGroupVersion.Version)).
		Patch(ctx, updated.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the status of definition %s: %w", updated.Name, err)
	}
	return nil
}
