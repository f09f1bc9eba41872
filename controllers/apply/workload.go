package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Workload brings one Deployment up. Gates are the findings about what it stands on: nothing is started or rolled while
// one of them is not fine, and pods that run keep running. It returns the Deployment as it is now, or nil.
func (c Cluster) Workload(ctx context.Context, conditionType string, wanted *appsv1.Deployment, gates ...status.Finding) (*appsv1.Deployment, status.Finding, error) {
	live, err := Get[appsv1.Deployment](ctx, c, wanted.Namespace, wanted.Name)
	if err != nil {
		return nil, status.Finding{}, err
	}
	if clash := desired.Clash(&wanted.Spec.Template.Spec); clash != "" {
		return live, status.Stall(conditionType, "InvalidSpec", "%s", clash), nil
	}
	for _, gate := range gates {
		if gate.Kind == status.Fine {
			continue
		}
		if live != nil {
			return live, status.Deployment(conditionType, wanted.Name, live), nil
		}
		return nil, status.Wait(conditionType, operatorv1alpha1.ReasonDeploymentUnavailable, "waiting for %s: %s", gate.Type, gate.Message), nil
	}
	revisions, missing, err := c.Revisions(ctx, wanted.Namespace, desired.MountsOf(&wanted.Spec.Template.Spec))
	if err != nil {
		return live, status.Finding{}, err
	}
	if len(missing) > 0 {
		reason, note := operatorv1alpha1.ReasonDeploymentUnavailable, ""
		if live != nil {
			reason, note = operatorv1alpha1.ReasonReplicasUnavailable, "; the pods keep their previous configuration until then"
		}
		return live, status.Wait(conditionType, reason,
			"%s missing in namespace %s, which the pods of %s mount: create what is yours among them%s",
			isOrAre(missing), wanted.Namespace, wanted.Name, note), nil
	}
	desired.StampRevisions(&wanted.Spec.Template, revisions)
	if err := c.Deployment(ctx, conditionType, live, wanted); err != nil {
		return live, status.Finding{}, err
	}
	return wanted, status.Deployment(conditionType, wanted.Name, wanted), nil
}

// Observe reports on the pods of a Deployment that is left as it is. It returns the Deployment, or nil.
func (c Cluster) Observe(ctx context.Context, conditionType, namespace, name string) (*appsv1.Deployment, status.Finding, error) {
	live, err := Get[appsv1.Deployment](ctx, c, namespace, name)
	if err != nil {
		return nil, status.Finding{}, err
	}
	return live, status.Deployment(conditionType, name, live), nil
}

// Settle sorts the outcome of a step: a finding inside an error goes into the report and ends only that step, any other
// error is returned.
func Settle(report *status.Report, finding status.Finding, err error) error {
	var found *status.Error
	switch {
	case errors.As(err, &found):
		report.Add(found.Finding)
		return nil
	case err != nil:
		return err
	}
	if finding.Type == "" {
		return fmt.Errorf("a step reported nothing")
	}
	report.Add(finding)
	return nil
}

func isOrAre(names []string) string {
	verb := " is"
	if len(names) > 1 {
		verb = " are"
	}
	return strings.Join(names, ", ") + verb
}
