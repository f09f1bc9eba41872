package binding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// boundPollInterval is short: a binding takes a fraction of a second.
const boundPollInterval = 200 * time.Millisecond

// Request holds the arguments of "kubectl kcp bind apiexport".
type Request struct {
	// Path and Export name the export: its workspace and its name.
	Path   logicalcluster.Path
	Export string
	// Name of the APIBinding, that of the export if empty.
	Name string
	// Timeout bounds the wait until the binding is bound.
	Timeout time.Duration
	// Accept and Reject answer single claims, written RESOURCE.GROUP; the All flags answer every claim of the export.
	Accept, Reject       []string
	AcceptAll, RejectAll bool
	// Labels of the APIBinding, if any.
	Labels map[string]string
}

// parseExport parses PATH:EXPORT, with or without a leading colon.
func parseExport(reference string) (path logicalcluster.Path, name string, err error) {
	trimmed := strings.TrimPrefix(reference, ":")
	at := strings.LastIndex(trimmed, ":")
	if at <= 0 || at == len(trimmed)-1 {
		return path, "", fmt.Errorf("%q is not a reference to an APIExport: expected <path>:<apiexport>, the full path of its workspace and its name, as in root:org:provider:cowboys", reference)
	}
	if path, err = logicalcluster.ParsePath(trimmed[:at]); err != nil {
		return path, "", fmt.Errorf("%q is no workspace path in %q: want <path>:<apiexport>, as in root:org:provider:cowboys", trimmed[:at], reference)
	}
	return path, trimmed[at+1:], nil
}

// validate refuses requests that are invalid for any server.
func (r *Request) validate() error {
	single := len(r.Accept)+len(r.Reject) > 0
	switch {
	case r.AcceptAll && r.RejectAll:
		return errors.New("--accept-all-permission-claims and --reject-all-permission-claims exclude each other")
	case r.AcceptAll && single:
		return errors.New("--accept-all-permission-claims cannot be combined with --accept-permission-claim or --reject-permission-claim")
	case r.RejectAll && single:
		return errors.New("--reject-all-permission-claims cannot be combined with --accept-permission-claim or --reject-permission-claim")
	case r.Timeout <= 0:
		return fmt.Errorf("--timeout must be positive, not %s", r.Timeout)
	}
	_, err := r.parseClaims()
	return err
}

// parseClaims returns the claims that are answered one by one.
func (r *Request) parseClaims() ([]claim, error) {
	var all []claim
	for _, list := range []struct {
		state string
		texts []string
	}{{accepted, r.Accept}, {rejected, r.Reject}} {
		for _, text := range list.texts {
			one, err := parseClaim(text)
			if err != nil {
				return nil, err
			}
			one.State = list.state
			at := slices.IndexFunc(all, one.hasSameResource)
			if at >= 0 && all[at].State != one.State {
				return nil, fmt.Errorf("the permission claim %s is both accepted and rejected", text)
			}
			if at < 0 {
				all = append(all, one)
			}
		}
	}
	return all, nil
}

// resolveClaims completes the answers with the claims of the export. A claim on a resource with an identity contains the
// identity hash, so an answer without it would match no claim. Permission to read the export is required only for
// --*-all-*.
func (r *Request) resolveClaims(ctx context.Context, installation *connection.Installation) ([]claim, error) {
	requested, err := r.parseClaims()
	all := r.AcceptAll || r.RejectAll
	if err != nil || !all && len(requested) == 0 {
		return nil, err
	}
	export, err := installation.Get(ctx, r.Path, connection.APIExports, r.Export)
	if err != nil && !all {
		return requested, nil // used as written; the server validates them
	}
	if err != nil {
		return nil, fmt.Errorf("finding out what the export claims: %w", err)
	}
	exported, err := decodeClaims(export)
	if err != nil {
		return nil, err
	}
	if all {
		return r.claimAll(exported.Spec.PermissionClaims), nil
	}
	return withIdentities(requested, exported.Spec.PermissionClaims), nil
}

func (r *Request) claimAll(exported []claim) []claim {
	state := accepted
	if r.RejectAll {
		state = rejected
	}
	var requested []claim
	for _, one := range exported {
		requested = append(requested, claim{Group: one.Group, Resource: one.Resource, IdentityHash: one.IdentityHash, State: state})
	}
	return requested
}

func withIdentities(requested, exported []claim) []claim {
	for i, c := range requested {
		for _, one := range exported {
			if one.Group == c.Group && one.Resource == c.Resource {
				requested[i].IdentityHash = one.IdentityHash
			}
		}
	}
	return requested
}

// object returns the APIBinding to create.
func (r *Request) object(version string, requested []claim) *unstructured.Unstructured {
	spec := map[string]any{"reference": map[string]any{"export": map[string]any{"path": r.Path.String(), "name": r.Export}}}
	var entries []any
	for _, c := range requested {
		entries = append(entries, c.object(version))
	}
	if entries != nil {
		spec["permissionClaims"] = entries
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": connection.APIBindings.Group + "/" + version,
		"kind":       "APIBinding",
		"metadata":   map[string]any{"name": orElse(r.Name, r.Export)},
		"spec":       spec,
	}}
	object.SetLabels(r.Labels)
	return object
}

// Bind creates the APIBinding in a workspace, reports that on out, and waits until it is bound. Warnings about claims
// of the export that have no effective answer go to errOut.
func Bind(ctx context.Context, installation *connection.Installation, workspace logicalcluster.Path, request Request, out, errOut io.Writer) error {
	if err := request.validate(); err != nil {
		return err
	}
	resource, err := installation.PreferredResource(workspace, connection.APIBindings)
	if err != nil {
		return err
	}
	requested, err := request.resolveClaims(ctx, installation)
	if err != nil {
		return err
	}
	client, err := installation.Resource(workspace, resource)
	if err != nil {
		return err
	}
	object := request.object(resource.Version, requested)
	created, err := client.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("workspace %q has an APIBinding %q already; choose another name with --name, or delete it first", workspace, object.GetName())
	}
	if err != nil {
		return fmt.Errorf("creating APIBinding %q in workspace %q: %w", object.GetName(), workspace, err)
	}
	fmt.Fprintf(out, "apibinding %s created. Waiting to successfully bind ...\n", created.GetName())
	bound, err := waitBound(ctx, client, created, request.Timeout)
	if err != nil {
		return fmt.Errorf("could not bind %s: %w", created.GetName(), err)
	}
	fmt.Fprintf(out, "%s created and bound.\n", created.GetName())
	flags := ""
	if workspace != installation.Path {
		flags = " -w :" + workspace.String()
	}
	return warn(bound, resource.Version, flags, errOut)
}

// warn prints warnings for claims without an answer, or with one that has no effect: verbs take effect only where both
// sides name them, and a binding created here names all of them only as "*".
func warn(bound *unstructured.Unstructured, version, flags string, errOut io.Writer) error {
	if version == "v1alpha1" {
		return nil // claims have no verbs, and Warnings reads the other version
	}
	lines, err := Warnings(bound, flags)
	for _, line := range lines {
		fmt.Fprintln(errOut, line)
	}
	return err
}

// waitBound polls an APIBinding until it is bound, and returns its latest version. The error of a timeout contains what
// the binding was waiting for.
func waitBound(ctx context.Context, client dynamic.ResourceInterface, binding *unstructured.Unstructured, timeout time.Duration) (*unstructured.Unstructured, error) {
	name := binding.GetName()
	err := wait.PollUntilContextTimeout(ctx, boundPollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		latest, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		binding = latest
		phase, _, _ := unstructured.NestedString(binding.Object, "status", "phase")
		return phase == "Bound", nil
	})
	if wait.Interrupted(err) {
		return nil, fmt.Errorf("not bound after %s: %w", timeout, notBoundError(binding))
	}
	return binding, err
}
