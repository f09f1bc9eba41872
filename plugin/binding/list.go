package binding

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// listClaims runs "kubectl kcp claims get apibinding [NAME]"; an empty name selects all bindings of the workspace.
func listClaims(ctx context.Context, installation *connection.Installation, workspace logicalcluster.Path, name string, out io.Writer) error {
	resource, err := installation.PreferredResource(workspace, connection.APIBindings)
	if err != nil {
		return err
	}
	var bindings []unstructured.Unstructured
	if name == "" {
		if bindings, err = installation.List(ctx, workspace, resource); err != nil {
			return err
		}
	} else {
		binding, err := installation.Get(ctx, workspace, resource, name)
		if err != nil {
			return err
		}
		bindings = append(bindings, *binding)
	}
	return renderClaims(bindings, resource.Version, out)
}

// renderClaims writes one row per claim in the spec of a binding.
func renderClaims(bindings []unstructured.Unstructured, version string, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	withVerbs := version != "v1alpha1"
	if withVerbs {
		fmt.Fprintln(table, "APIBINDING\tGROUP-RESOURCE\tVERBS\tSTATUS")
	} else {
		fmt.Fprintln(table, "APIBINDING\tGROUP-RESOURCE\tSTATUS")
	}
	for i := range bindings {
		binding, err := decodeClaims(&bindings[i])
		if err != nil {
			return err
		}
		for _, one := range binding.Spec.PermissionClaims {
			if withVerbs {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", bindings[i].GetName(), one, one.verbs(), one.State)
			} else {
				fmt.Fprintf(table, "%s\t%s\t%s\n", bindings[i].GetName(), one, one.State)
			}
		}
	}
	return table.Flush()
}
