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

// answer holds the arguments of "kubectl kcp claims accept|reject BINDING".
type answer struct {
	binding      string
	state        string // accepted or rejected
	resource     string // RESOURCE.GROUP, all if empty
	identityHash string // all if empty
}

// line returns the message of success.
func (a answer) line() string {
	what := fmt.Sprintf("on APIBinding %q is %s", a.binding, strings.ToLower(a.state))
	switch {
	case a.resource != "":
		return fmt.Sprintf("claim %q %s", a.resource, what)
	case a.identityHash != "":
		return fmt.Sprintf("claim with identity hash %q %s", a.identityHash, what)
	}
	return what
}

// matches returns the predicate for the selected claims.
func (a answer) matches() (func(claim) bool, error) {
	var wanted claim
	if a.resource != "" {
		var err error
		if wanted, err = parseClaim(a.resource); err != nil {
			return nil, err
		}
	}
	return func(c claim) bool {
		return (a.resource == "" || c.Group == wanted.Group && c.Resource == wanted.Resource) &&
			(a.identityHash == "" || c.IdentityHash == a.identityHash)
	}, nil
}

// apply changes the spec of a binding: selected claims in it get the state, selected claims of the export that it does
// not contain are added with the verbs and the selector that the export proposes. It fails when no claim is selected.
func (a answer) apply(object *unstructured.Unstructured) error {
	meant, err := a.matches()
	if err != nil {
		return err
	}
	binding, err := claimsOf(object)
	if err != nil {
		return err
	}
	entries, _, err := unstructured.NestedSlice(object.Object, "spec", "permissionClaims")
	if err != nil {
		return fmt.Errorf("reading the claims of APIBinding %q: %w", a.binding, err)
	}
	found := false
	for i, specified := range binding.Spec.PermissionClaims {
		if meant(specified) {
			a.change(entries[i].(map[string]any), specified, binding.Status.ExportPermissionClaims)
			found = true
		}
	}
	for _, exported := range binding.Status.ExportPermissionClaims {
		if !meant(exported) || slices.ContainsFunc(binding.Spec.PermissionClaims, exported.sameObjects) {
			continue
		}
		exported.State = a.state
		entries = append(entries, exported.object(object.GroupVersionKind().Version))
		found = true
	}
	if !found {
		return a.nothingMeant(binding)
	}
	return unstructured.SetNestedSlice(object.Object, entries, "spec", "permissionClaims")
}

// change sets the state of a claim in a binding. Verbs take effect only where both sides name them, literally: an
// accepted "*" means all requested verbs, and would grant nothing to an export that names its verbs.
func (a answer) change(entry map[string]any, specified claim, exported []claim) {
	entry["state"] = a.state
	at := slices.IndexFunc(exported, specified.sameObjects)
	if a.state == accepted && at >= 0 && specified.verbs() == "*" && !slices.Contains(exported[at].Verbs, "*") {
		entry["verbs"] = asAny(exported[at].Verbs)
	}
}

func (a answer) nothingMeant(binding claims) error {
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
		return fmt.Errorf("APIBinding %q has no permission claims", a.binding)
	}
	slices.Sort(known)
	return fmt.Errorf("APIBinding %q has no such permission claim; it has %s", a.binding, strings.Join(slices.Compact(known), ", "))
}

// answerClaims runs "kubectl kcp claims accept" and "reject".
func answerClaims(ctx context.Context, installation *connection.Installation, workspace logicalcluster.Path, given answer, out io.Writer) error {
	if given.binding == "" {
		return errors.New("error APIBinding name is missing")
	}
	resource, err := installation.Preferred(workspace, connection.APIBindings)
	if err != nil {
		return err
	}
	client, err := installation.Resource(workspace, resource)
	if err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := client.Get(ctx, given.binding, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("getting APIBinding %q in workspace %q: %w", given.binding, workspace, err)
		}
		if err := given.apply(object); err != nil {
			return err
		}
		_, err = client.Update(ctx, object, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("updating APIBinding %q in workspace %q: %w", given.binding, workspace, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, given.line())
	return err
}
