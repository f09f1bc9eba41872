package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// Resolve resolves the argument of a command that acts on a workspace, as "kubectl ws" does: a name, a path relative to the
// current workspace, or an absolute one with a leading colon. It enters nothing.
func Resolve(ctx context.Context, session *connection.Session, arg string) (*connection.Installation, logicalcluster.Path, error) {
	homeDir, _ := os.UserHomeDir() // without a home directory no shell has expanded "~"
	t := parseTarget(arg, homeDir, false)
	n := &navigator{session: session}
	if t.move == moveBack || t.move == moveAdmin {
		return nil, logicalcluster.Path{}, fmt.Errorf("invalid workspace path: %s", arg)
	}
	installation, err := n.installation(t)
	if err != nil {
		return nil, logicalcluster.Path{}, err
	}
	from := installation.Path
	switch t.move {
	case moveNone:
		if _, isAdmin := connection.AdminLocation(session.URL()); isAdmin {
			return nil, from, errors.New("the admin workspace is no workspace of a shard: use a path that starts with ':'")
		}
		return installation, from, nil
	case moveTreeRoot:
		return installation, connection.TreeRoot(from), nil
	case moveHome:
		if from, err = installation.Home(ctx); err != nil {
			return nil, from, err
		}
	}
	path, err := t.resolve(from, arg)
	return installation, path, err
}

// CompletePath completes the first argument of a command with the workspaces that the user can see.
func CompletePath(flags *connection.Flags) cobra.CompletionFunc { return completePath(flags) }
