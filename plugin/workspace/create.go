package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

const (
	readyPollInterval = 500 * time.Millisecond
	readyTimeout      = time.Minute
	// enterTimeout bounds how long a ready workspace may be missing in the front proxy, whose index follows a watch.
	enterTimeout = 10 * time.Second
)

// createOptions holds the arguments of "kubectl create workspace NAME".
type createOptions struct {
	name             string
	workspaceType    string // "name" or "path:name"; if "", the server selects the default
	locationSelector string
	ignoreExisting   bool
	enter            bool
	contextName      string
}

// validate completes the request and refuses what is invalid for any server.
func (c *createOptions) validate() error {
	if c.workspaceType != "" {
		path, name := splitType(c.workspaceType)
		name = strings.ToLower(name)
		if name == "" || (path == "" && strings.Contains(c.workspaceType, ":")) {
			return fmt.Errorf("invalid workspace type %q: want a name, or an absolute path and a name like root:universal", c.workspaceType)
		}
		if c.workspaceType = name; path != "" {
			c.workspaceType = path + ":" + name
		}
	}
	if c.ignoreExisting && c.workspaceType != "" && !strings.HasPrefix(c.workspaceType, "root:") {
		return errors.New("--ignore-existing must not be used with non-absolute type path")
	}
	if _, err := c.location(); err != nil {
		return err
	}
	return nil
}

func splitType(reference string) (path, name string) {
	if at := strings.LastIndex(reference, ":"); at >= 0 {
		return reference[:at], reference[at+1:]
	}
	return "", reference
}

func (c *createOptions) location() (*metav1.LabelSelector, error) {
	if c.locationSelector == "" {
		return nil, nil
	}
	selector, err := metav1.ParseToLabelSelector(c.locationSelector)
	if err != nil {
		return nil, fmt.Errorf("invalid location selector: %w", err)
	}
	return selector, nil
}

// object returns the Workspace to create.
func (c *createOptions) object() (*unstructured.Unstructured, error) {
	spec := map[string]any{}
	if c.workspaceType != "" {
		path, name := splitType(c.workspaceType)
		reference := map[string]any{"name": name}
		if path != "" {
			reference["path"] = path
		}
		spec["type"] = reference
	}
	selector, err := c.location()
	if err != nil {
		return nil, err
	}
	if selector != nil {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(selector)
		if err != nil {
			return nil, fmt.Errorf("invalid location selector: %w", err)
		}
		spec["location"] = map[string]any{"selector": content}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": connection.Workspaces.GroupVersion().String(),
		"kind":       "Workspace",
		"metadata":   map[string]any{"name": c.name},
		"spec":       spec,
	}}, nil
}

// create runs "kubectl create workspace NAME": create below parent, wait until ready, and enter if requested.
func (n *navigator) create(ctx context.Context, flags *connection.Flags, o createOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	installation, err := n.session.Installation()
	if err != nil {
		return err
	}
	parent, err := flags.Workspace(installation.Path)
	if err != nil {
		return err
	}
	client, err := installation.Resource(parent, connection.Workspaces)
	if err != nil {
		return err
	}
	object, existed, err := createOrGet(ctx, client, parent, o)
	if err != nil {
		return err
	}

	reference := fmt.Sprintf("Workspace %q", o.name)
	if workspaceType := getType(object); workspaceType != "" {
		reference += fmt.Sprintf(" (type %s)", workspaceType)
	}
	switch {
	case existed && getPhase(object) == phaseReady:
		fmt.Fprintf(n.Out, "%s already exists.\n", reference)
	case existed:
		fmt.Fprintf(n.Out, "%s already exists. Waiting for it to be ready...\n", reference)
	default:
		fmt.Fprintf(n.Out, "%s created. Waiting for it to be ready...\n", reference)
	}
	if !existed || getPhase(object) != phaseReady {
		if object, err = waitReady(ctx, client, object, readyTimeout); err != nil {
			return err
		}
		fmt.Fprintf(n.Out, "%s is ready to use.\n", reference)
	}
	return n.afterCreate(ctx, installation, parent.Join(o.name), object, o)
}

func (n *navigator) afterCreate(ctx context.Context, installation *connection.Installation, path logicalcluster.Path, object *unstructured.Unstructured, o createOptions) error {
	if o.contextName != "" {
		serverURL, _, _ := unstructured.NestedString(object.Object, "spec", "URL")
		if serverURL == "" {
			return fmt.Errorf("workspace %q has no URL, cannot create a context for it", o.name)
		}
		named := namedContext{name: o.contextName, serverURL: serverURL, overwrite: o.ignoreExisting, keepCurrent: !o.enter}
		if o.enter {
			return n.enterContext(ctx, named)
		}
		return n.addContext(named)
	}
	if !o.enter {
		return nil
	}
	var lastErr error
	err := wait.PollUntilContextTimeout(ctx, readyPollInterval, enterTimeout, true, func(ctx context.Context) (bool, error) {
		lastErr = n.enter(ctx, installation, path, true)
		var noAccess *noAccessError
		if errors.As(lastErr, &noAccess) {
			return false, nil
		}
		return true, lastErr
	})
	if wait.Interrupted(err) {
		return lastErr
	}
	return err
}

// createOrGet creates the Workspace, or returns the existing one if the user accepts that and its type matches.
func createOrGet(ctx context.Context, client dynamic.ResourceInterface, parent logicalcluster.Path, o createOptions) (object *unstructured.Unstructured, existed bool, err error) {
	object, err = o.object()
	if err != nil {
		return nil, false, err
	}
	created, err := client.Create(ctx, object, metav1.CreateOptions{})
	if err == nil {
		return created, false, nil
	}
	if !o.ignoreExisting || !apierrors.IsAlreadyExists(err) {
		return nil, false, fmt.Errorf("creating workspace %q in %q: %w", o.name, parent, err)
	}
	existing, err := client.Get(ctx, o.name, metav1.GetOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("getting the existing workspace %q in %q: %w", o.name, parent, err)
	}
	if o.workspaceType != "" && getType(existing) != o.workspaceType {
		return nil, false, fmt.Errorf("workspace %q cannot be created with type %s, it already exists with different type %s",
			o.name, o.workspaceType, getType(existing))
	}
	if existing.GetDeletionTimestamp() != nil {
		return nil, false, fmt.Errorf("workspace %q already exists and is being deleted, try again when it is gone", o.name)
	}
	return existing, true, nil
}

// waitReady polls a Workspace until it is ready. The error of a timeout contains what the workspace was waiting for.
func waitReady(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured, timeout time.Duration) (*unstructured.Unstructured, error) {
	name := object.GetName()
	err := wait.PollUntilContextTimeout(ctx, readyPollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		latest, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("waiting for workspace %q to be ready: %w", name, err)
		}
		object = latest
		return getPhase(object) == phaseReady, nil
	})
	if wait.Interrupted(err) {
		return nil, fmt.Errorf("workspace %q is not ready after %s: %s", name, timeout, notReadyReason(object))
	}
	if err != nil {
		return nil, err
	}
	return object, nil
}

const phaseReady = "Ready"

func getPhase(object *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	return phase
}

// notReadyReason returns the phase of a Workspace and its false conditions.
func notReadyReason(object *unstructured.Unstructured) string {
	reasons := []string{"phase " + getPhase(object)}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, raw := range conditions {
		condition, ok := raw.(map[string]any)
		if !ok || condition["status"] != "False" || condition["type"] == "Ready" {
			continue // Ready summarizes the others
		}
		reasons = append(reasons, fmt.Sprintf("%v: %v", condition["type"], condition["message"]))
	}
	return strings.Join(reasons, ", ")
}
