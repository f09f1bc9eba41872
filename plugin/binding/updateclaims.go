package binding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// claimOptions holds the arguments of "kubectl kcp claims accept|reject BINDING".
type claimOptions struct {
	binding      string
	state        string // accepted or rejected
	resource     string // RESOURCE.GROUP, all if empty
	identityHash string // all if empty
}

// successMessage returns the message of success.
func (co claimOptions) successMessage() string {
	what := fmt.Sprintf("on APIBinding %q is %s", co.binding, strings.ToLower(co.state))
	switch {
	case co.resource != "":
		return fmt.Sprintf("claim %q %s", co.resource, what)
	case co.identityHash != "":
		return fmt.Sprintf("claim with identity hash %q %s", co.identityHash, what)
	}
	return what
}

// claimFilter returns the predicate for the selected claims.
func (co claimOptions) claimFilter() (func(claim) bool, error) {
	var expected claim
	if co.resource != "" {
		var err error
		if expected, err = parseClaim(co.resource); err != nil {
			return nil, err
		}
	}
	return func(c claim) bool {
		return (co.resource == "" || c.Group == expected.Group && c.Resource == expected.Resource) &&
			(co.identityHash == "" || c.IdentityHash == co.identityHash)
	}, nil
}

// apply changes the spec of a binding: selected claims in it get the state, selected claims of the export that it does
// not contain are added with the verbs and the selector that the export proposes. It fails when no claim is selected.
func (co claimOptions) apply(object *unstructured.Unstructured) error {
	isSelected, err := co.claimFilter()
	if err != nil {
		return err
	}
	binding, err := decodeClaims(object)
	if err != nil {
		return err
	}
	entries, _, err := unstructured.NestedSlice(object.Object, "spec", "permissionClaims")
	if err != nil {
		return fmt.Errorf("reading the claims of APIBinding %q: %w", co.binding, err)
	}
	found := false
	for i, specified := range binding.Spec.PermissionClaims {
		if isSelected(specified) {
			co.setState(entries[i].(map[string]any), specified, binding.Status.ExportPermissionClaims)
			found = true
		}
	}
	for _, exported := range binding.Status.ExportPermissionClaims {
		if !isSelected(exported) || slices.ContainsFunc(binding.Spec.PermissionClaims, exported.hasSameResource) {
			continue
		}
		exported.State = co.state
		entries = append(entries, exported.object(object.GroupVersionKind().Version))
		found = true
	}
	if !found {
		return co.noMatchError(binding)
	}
	return unstructured.SetNestedSlice(object.Object, entries, "spec", "permissionClaims")
}

// setState sets the state of a claim in a binding. Verbs take effect only where both sides name them, literally: an
// accepted "*" means all requested verbs, and would grant nothing to an export that names its verbs.
func (co claimOptions) setState(entry map[string]any, specified claim, exported []claim) {
	entry["state"] = co.state
	at := slices.IndexFunc(exported, specified.hasSameResource)
	if co.state == accepted && at >= 0 && specified.verbs() == "*" && !slices.Contains(exported[at].Verbs, "*") {
		entry["verbs"] = toAnySlice(exported[at].Verbs)
	}
}

func (co claimOptions) noMatchError(binding claims) error {
	var known []string
	for _, one := range append(binding.Spec.PermissionClaims, binding.Status.ExportPermissionClaims...) {
		group := orElse(one.Group, coreGroup)
		text := one.Resource + "." + group
		if one.IdentityHash != "" {
			text += " (identity hash " + one.IdentityHash + ")"
		}
		known = append(known, text)
	}
	if len(known) == 0 {
		return fmt.Errorf("APIBinding %q has no permission claims", co.binding)
	}
	slices.Sort(known)
	return fmt.Errorf("APIBinding %q has no such permission claim; it has %s", co.binding, strings.Join(slices.Compact(known), ", "))
}

// updateClaims runs "kubectl kcp claims accept" and "reject".
func updateClaims(ctx context.Context, installation *connection.Installation, workspace logicalcluster.Path, o claimOptions, out io.Writer) error {
	if o.binding == "" {
		return errors.New("error APIBinding name is missing")
	}
	resource, err := installation.PreferredResource(workspace, connection.APIBindings)
	if err != nil {
		return err
	}
	client, err := installation.Resource(workspace, resource)
	if err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := client.Get(ctx, o.binding, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("getting APIBinding %q in workspace %q: %w", o.binding, workspace, err)
		}
		if err := o.apply(object); err != nil {
			return err
		}
		_, err = client.Update(ctx, object, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("updating APIBinding %q in workspace %q: %w", o.binding, workspace, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, o.successMessage())
	return err
}
