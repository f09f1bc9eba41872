package lifecycle

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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// fieldManager is who the status of definitions is by.
const fieldManager = "kcp-definitions"

// statusController decides for all definitions of one group in one logical cluster at once: its keys are groups. So no
// two decisions about the same names are ever made side by side.
type statusController struct {
	reader *storage.Reader[*apiextensions.CustomResourceDefinition]
	client metadata.Interface
}

func newStatusController(cfg Config, reader *storage.Reader[*apiextensions.CustomResourceDefinition]) controller.Controller {
	c := &statusController{reader: reader, client: cfg.Clients.Metadata}
	return controller.Controller{
		Name:      "definition-status",
		Inputs:    []controller.Input{{Resource: definitions, Keys: groupKey}},
		Reconcile: c.reconcile,
	}
}

func groupKey(event watch.Event) []controller.Key {
	definition, ok := event.Object.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil
	}
	return []controller.Key{{Cluster: logicalcluster.Of(definition), Name: definition.Spec.Group}}
}

func (c *statusController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	group, err := c.group(ctx, key.Name, c.reader.List)
	if err != nil || len(undecided(group)) == 0 {
		return controller.Result{}, err
	}
	if key.Cluster != logicalcluster.BoundCRDs && slices.ContainsFunc(undecided(group), func(d *apiextensions.CustomResourceDefinition) bool { return disputed(d, group) }) {
		// The cache may not show yet whom a name was given to a moment ago.
		if group, err = c.group(ctx, key.Name, c.reader.ListLatest); err != nil {
			return controller.Result{}, err
		}
	}
	for _, definition := range undecided(group) {
		others := takenBy(group, definition.Name)
		if key.Cluster == logicalcluster.BoundCRDs { // where nothing is served: whoever binds two of one name is told then
			others = taken{}
		}
		decided := decide(definition, others)
		if equality.Semantic.DeepEqual(decided.Status, definition.Status) {
			continue
		}
		if err := writeStatus(ctx, c.client, decided, nil); err != nil {
			return controller.Result{}, err
		}
		group[slices.Index(group, definition)] = decided
	}
	return controller.Result{}, nil
}

// group lists the definitions of a group, the oldest first: it is the first to choose its names.
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

// undecided returns those whose status may have to change. It is quick: it is asked about all at every event of one.
func undecided(group []*apiextensions.CustomResourceDefinition) []*apiextensions.CustomResourceDefinition {
	var undecided []*apiextensions.CustomResourceDefinition
	for _, definition := range group {
		if !equality.Semantic.DeepEqual(definition.Spec.Names, definition.Status.AcceptedNames) ||
			!apiextensions.IsCRDConditionTrue(definition, apiextensions.NamesAccepted) ||
			!apiextensions.IsCRDConditionTrue(definition, apiextensions.Established) ||
			!upToDate(definition, apiextensions.KubernetesAPIApprovalPolicyConformant, approved(definition)) ||
			!upToDate(definition, apiextensions.NonStructuralSchema, nonStructural(definition)) {
			undecided = append(undecided, definition)
		}
	}
	return undecided
}

func upToDate(definition *apiextensions.CustomResourceDefinition, kind apiextensions.CustomResourceDefinitionConditionType, want *apiextensions.CustomResourceDefinitionCondition) bool {
	return apiextensions.IsCRDConditionEquivalent(want, apiextensions.FindCRDCondition(definition, kind))
}

// writeStatus writes conditions and accepted names, and no more, so that neither side has to handle the schemas. With
// finalizers (not nil) it replaces those too. It fails with a conflict if the definition is not what the decision was
// made on; a definition that is gone needs no status.
func writeStatus(ctx context.Context, client metadata.Interface, decided *apiextensions.CustomResourceDefinition, finalizers []string) error {
	var status apiextensionsv1.CustomResourceDefinitionStatus
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinitionStatus_To_v1_CustomResourceDefinitionStatus(&decided.Status, &status, nil); err != nil {
		return fmt.Errorf("converting the status of definition %s: %w", decided.Name, err)
	}
	meta := map[string]any{"uid": decided.UID, "resourceVersion": decided.ResourceVersion}
	if finalizers != nil {
		meta["finalizers"] = finalizers
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": meta,
		"status": map[string]any{"conditions": status.Conditions, "acceptedNames": map[string]any{ // null takes a field away
			"plural": status.AcceptedNames.Plural, "singular": status.AcceptedNames.Singular,
			"kind": status.AcceptedNames.Kind, "listKind": status.AcceptedNames.ListKind,
			"shortNames": status.AcceptedNames.ShortNames, "categories": status.AcceptedNames.Categories,
		}},
	})
	if err != nil {
		return fmt.Errorf("encoding the status of definition %s: %w", decided.Name, err)
	}
	_, err = client.Resource(definitions.WithVersion(apiextensionsv1.SchemeGroupVersion.Version)).
		Patch(ctx, decided.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the status of definition %s: %w", decided.Name, err)
	}
	return nil
}
