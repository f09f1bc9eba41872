package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/binding"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// navigator moves the user's kubeconfig through the tree of workspaces.
type navigator struct {
	genericiooptions.IOStreams
	session *connection.Session
	short   bool // print bare paths, for scripts
}

// use runs "kubectl ws ARG".
func (n *navigator) use(ctx context.Context, arg string) error {
	homeDir, _ := os.UserHomeDir() // without a home directory no shell has expanded "~"
	t := parseTarget(arg, homeDir, n.short)
	if t.note != "" {
		fmt.Fprintln(n.ErrOut, t.note)
	}
	switch t.move {
	case moveNone:
		return n.printCurrent()
	case moveBack:
		return n.back(ctx)
	}

	installation, err := n.installation(t)
	if err != nil {
		return err
	}
	from := installation.Path
	switch t.move {
	case moveAdmin:
		return n.enterAdmin(ctx, installation)
	case moveTreeRoot:
		return n.enter(ctx, installation, connection.TreeRoot(from), false)
	case moveHome:
		if from, err = installation.Home(ctx); err != nil {
			return err
		}
	}
	path, err := t.resolve(from, arg)
	if err != nil {
		return err
	}
	return n.enter(ctx, installation, path, true)
}

// installation returns the installation of the current URL. From the admin workspace, no relative path leads anywhere.
func (n *navigator) installation(t target) (*connection.Installation, error) {
	location, ok := connection.AdminLocation(n.session.URL())
	if !ok {
		return n.session.Installation()
	}
	if t.move == movePath && !t.absolute {
		return nil, errors.New("the admin workspace has no workspaces: use a path that starts with ':', such as ':root'")
	}
	return n.session.InstallationAt(location)
}

// enterAdmin makes the admin workspace the current one.
func (n *navigator) enterAdmin(ctx context.Context, installation *connection.Installation) error {
	reachable, err := installation.IsAdminReachable()
	if err != nil {
		return err
	}
	if !reachable {
		return errors.New("access to the admin workspace denied: it is for members of the group system:kcp:admin, and the server has to be one that serves it")
	}
	changed, err := switchTo(n.session.Kubeconfig, installation.AdminURL())
	if err != nil {
		return err
	}
	return n.commit(ctx, changed, "")
}

// home runs "kubectl ws" without an argument.
func (n *navigator) home(ctx context.Context) error {
	fmt.Fprintln(n.ErrOut, homeNote)
	return n.use(ctx, "~")
}

// enter checks that a workspace can be entered and makes it the current one.
func (n *navigator) enter(ctx context.Context, installation *connection.Installation, path logicalcluster.Path, showType bool) error {
	workspaceType, err := checkAccess(ctx, installation, path)
	if err != nil {
		return err
	}
	changed, err := switchTo(n.session.Kubeconfig, installation.URLFor(path))
	if err != nil {
		return err
	}
	if !showType {
		workspaceType = ""
	}
	return n.commit(ctx, changed, workspaceType)
}

// back runs "kubectl ws -". It sends no request to check the previous entry, which need not even be a workspace.
func (n *navigator) back(ctx context.Context) error {
	changed, err := switchBack(n.session.Kubeconfig)
	if err != nil {
		return err
	}
	return n.commit(ctx, changed, "")
}

// commit saves the kubeconfig, prints the new workspace, and warns about claims there that have no answer.
func (n *navigator) commit(ctx context.Context, changed *clientcmdapi.Config, workspaceType string) error {
	session, err := n.session.Save(changed)
	if err != nil {
		return err
	}
	n.session = session
	if err := n.printWorkspace(workspaceType); err != nil {
		return err
	}
	n.warnAboutClaims(ctx)
	return nil
}

// printCurrent prints the current workspace. It sends no request.
func (n *navigator) printCurrent() error { return n.printWorkspace("") }

func (n *navigator) printWorkspace(workspaceType string) error {
	location, err := n.session.Location()
	_, isAdmin := connection.AdminLocation(n.session.URL())
	var line string
	switch {
	case isAdmin && n.short:
		line = adminName
	case isAdmin:
		line = fmt.Sprintf("Current workspace is '%s'.", adminName)
	case err != nil && n.short:
		return nil // a script requires a path and there is none
	case err != nil:
		line = fmt.Sprintf("Current workspace is the URL %q.", n.session.URL())
	case n.short:
		line = location.Path.String()
	case workspaceType != "":
		line = fmt.Sprintf("Current workspace is '%s' (type %s).", location.Path, workspaceType)
	default:
		line = fmt.Sprintf("Current workspace is '%s'.", location.Path)
	}
	_, err = fmt.Fprintln(n.Out, line)
	return err
}

func (n *navigator) warnAboutClaims(ctx context.Context) {
	installation, err := n.session.Installation()
	if err != nil {
		return // not a workspace, so there are no bindings
	}
	bindings, err := installation.List(ctx, installation.Path, connection.APIBindings)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return
	}
	for i := range bindings {
		lines, oneErr := binding.Warnings(&bindings[i], "")
		err = errors.Join(err, oneErr)
		for _, line := range lines {
			fmt.Fprintln(n.ErrOut, line)
		}
	}
	if err != nil { // the switch itself has succeeded
		fmt.Fprintf(n.ErrOut, "error checking APIBindings: %v\n", err)
	}
}

// noAccessError reports a workspace that cannot be entered.
type noAccessError struct {
	path     logicalcluster.Path
	notFound bool // the parent has no such workspace
}

func (e *noAccessError) Error() string {
	if e.notFound {
		return fmt.Sprintf("workspace %q not found", e.path)
	}
	return fmt.Sprintf("access to workspace %q denied", e.path)
}

// checkAccess checks whether the user may enter a workspace, and returns its type if the parent shows it ("" if
// unknown). It fails with a *noAccessError when the user may not.
func checkAccess(ctx context.Context, installation *connection.Installation, path logicalcluster.Path) (workspaceType string, err error) {
	reachable, err := installation.IsReachable(path)
	if err != nil {
		return "", err
	}
	parent, ok := connection.ParentOf(path)
	if !ok {
		if !reachable {
			return "", &noAccessError{path: path}
		}
		if path == logicalcluster.Root.Path() {
			return "root", nil
		}
		return "", nil
	}
	object, err := installation.Get(ctx, parent, connection.Workspaces, path.Base())
	switch {
	case !reachable:
		return "", &noAccessError{path: path, notFound: apierrors.IsNotFound(err)}
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil // a user may work in a workspace without permission to read its parent
	case err != nil:
		return "", err
	}
	return getType(object), nil
}

// getType returns the type of a Workspace as "path:name", or "" if it has none.
func getType(object *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(object.Object, "spec", "type", "name")
	path, _, _ := unstructured.NestedString(object.Object, "spec", "type", "path")
	if name == "" || path == "" {
		return name
	}
	return path + ":" + name
}
