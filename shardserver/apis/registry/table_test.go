package registry

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

func TestProblemColumns(t *testing.T) {
	condition := func(name string, status corev1.ConditionStatus, severity conditionsv1alpha1.Severity) conditionsv1alpha1.Condition {
		return conditionsv1alpha1.Condition{Type: conditionsv1alpha1.Type(name), Status: status, Severity: severity, Reason: "Of" + name, Message: "message of " + name}
	}
	printer, err := newPrinter(append(Columns{Age}, Problem[*tenancyv1alpha1.Workspace]()...))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		conditions conditionsv1alpha1.Conditions
		want       string
	}{
		"no conditions": {nil, "[, ]"},
		"all is well":   {conditionsv1alpha1.Conditions{condition("A", corev1.ConditionTrue, "")}, "[, ]"},
		"the worst of several": {conditionsv1alpha1.Conditions{
			condition("A", corev1.ConditionFalse, conditionsv1alpha1.SeverityInfo), condition("B", corev1.ConditionFalse, conditionsv1alpha1.SeverityError),
		}, "[OfB, message of B]"},
		"the summary says the same": {conditionsv1alpha1.Conditions{condition("Ready", corev1.ConditionFalse, conditionsv1alpha1.SeverityError)}, "[, ]"},
	} {
		t.Run(name, func(t *testing.T) {
			workspace := &tenancyv1alpha1.Workspace{}
			workspace.Status.Conditions = test.conditions
			list := &tenancyv1alpha1.WorkspaceList{Items: []tenancyv1alpha1.Workspace{*workspace, *workspace}}
			for _, obj := range []runtime.Object{workspace, list} {
				table, err := printer.ConvertToTable(t.Context(), obj, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(table.ColumnDefinitions) != 4 {
					t.Errorf("got columns %v", table.ColumnDefinitions)
				}
				for _, row := range table.Rows {
					if got := fmt.Sprintf("[%v, %v]", row.Cells[2], row.Cells[3]); got != test.want {
						t.Errorf("got %s, want %s", got, test.want)
					}
				}
			}
		})
	}
}
