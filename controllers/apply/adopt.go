package apply

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/status"
)

// formerManager is the field manager of kcp-operator, which writes whole objects with updates: the name of its program.
const formerManager = "manager"

// adopt prepares an existing object for a desired one. It returns a status.Error if another custom resource controls the object.
//
// Before this operator applies an object for the first time, adopt transfers the fields of kcp-operator to it. Otherwise fields that this
// operator does not render any more would remain, owned by another manager: volumes with certificates of system:masters, labels, subjects
// of certificates. Later updates by a manager of that name come from other programs, so adopt does not transfer those.
func (c Cluster) adopt(ctx context.Context, conditionType string, live, desired client.Object) error {
	if owner := otherController(live, desired); owner != nil {
		return status.Stall(conditionType, "NameTaken", "%s %s belongs to %s %s and is needed under this name here too: %s",
			desired.GetObjectKind().GroupVersionKind().Kind, desired.GetName(), owner.Kind, owner.Name, ownerAdvice(owner)).AsError()
	}
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply {
			return nil
		}
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(formerManager), FieldManager)
	if err == nil && patch != nil {
		err = c.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch))
	}
	if err != nil {
		return fmt.Errorf("adopting %T %s/%s: %w", live, live.GetNamespace(), live.GetName(), err)
	}
	return nil
}

// otherController returns another controller of an object, or nil. Names of children derive from names of custom resources, and those of
// two kinds can collide; without this check each would overwrite the other forever. A controller of the same kind and name is the same
// resource before it was recreated.
func otherController(live, desired metav1.Object) *metav1.OwnerReference {
	have, want := metav1.GetControllerOf(live), metav1.GetControllerOf(desired)
	if have == nil || want == nil || have.UID == want.UID || (have.Kind == want.Kind && have.Name == want.Name) {
		return nil
	}
	return have
}

// ownerAdvice returns what a user can do about another controller. The compiled kinds of kcp-operator own the objects of an installation;
// once a user deletes them without these objects, this operator adopts the objects.
func ownerAdvice(owner *metav1.OwnerReference) string {
	if strings.HasPrefix(owner.APIVersion, "deploy.operator.kcp.io/") {
		return fmt.Sprintf("stop the other operator and delete this %s with --cascade=orphan, and the object is adopted as it runs", owner.Kind)
	}
	return "recreate one of the two under another name"
}
