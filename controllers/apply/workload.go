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

// Workload brings one Deployment up. Gates are the results about what it stands on: nothing is started or rolled while
// one of them is not fine, and pods that run keep running. SettleWorkload takes what it returns; what the rollout of the
// installation has to say goes into the report.
func (c Cluster) Workload(ctx context.Context, report *status.Report, conditionType string, wanted *appsv1.Deployment, gates ...status.Result) (status.Result, error) {
	live, err := Get[appsv1.Deployment](ctx, c, wanted.Namespace, wanted.Name)
	if err != nil {
		return status.Result{}, err
	}
	if clash := desired.VolumeConflict(&wanted.Spec.Template.Spec); clash != "" {
		return status.Stall(conditionType, "InvalidSpec", "%s", clash), nil
	}
	for _, gate := range gates {
		switch {
		case gate.State == status.Satisfied:
		case live != nil:
			return status.ForDeployment(conditionType, wanted.Name, live), nil
		default:
			return status.Wait(conditionType, operatorv1alpha1.ReasonDeploymentUnavailable, "waiting for %s: %s", gate.Type, gate.Message), nil
		}
	}
	revisions, missing, err := c.Revisions(ctx, wanted.Namespace, desired.MountsOf(&wanted.Spec.Template.Spec))
	if err != nil {
		return status.Result{}, err
	}
	if len(missing) > 0 {
		return status.Wait(conditionType, operatorv1alpha1.ReasonReferenceNotFound, "%s missing in namespace %s, which the pods of %s mount: create what is yours among them",
			isOrAre(missing), wanted.Namespace, wanted.Name), nil
	}
	desired.LabelRevisions(&wanted.Spec.Template, revisions)
	if budget := desired.DisruptionBudget(wanted); budget != nil {
		if err := c.Object(ctx, conditionType, budget); err != nil {
			return status.Result{}, err
		}
	}
	return c.roll(ctx, report, conditionType, live, wanted)
}

// roll applies a Deployment: all of it, or all but the pod template while the gate keeps that back.
func (c Cluster) roll(ctx context.Context, report *status.Report, conditionType string, live, wanted *appsv1.Deployment) (status.Result, error) {
	if live == nil {
		if err := stampTemplate(wanted, &wanted.Spec.Template); err != nil {
			return status.Result{}, err
		}
	} else {
		verdict, err := c.gated(ctx, live, wanted)
		if err != nil {
			return status.Result{}, err
		}
		report.SetWorst(verdict)
	}
	if err := c.Deployment(ctx, conditionType, live, wanted); err != nil {
		return status.Result{}, err
	}
	return status.ForDeployment(conditionType, wanted.Name, wanted), nil
}

// Observe reports on the pods of a Deployment that is left as it is. It returns the Deployment, or nil.
func (c Cluster) Observe(ctx context.Context, conditionType, namespace, name string) (*appsv1.Deployment, status.Result, error) {
	live, err := Get[appsv1.Deployment](ctx, c, namespace, name)
	if err != nil {
		return nil, status.Result{}, err
	}
	return live, status.ForDeployment(conditionType, name, live), nil
}

// Settle sorts the outcome of a step: a result inside an error goes into the report and ends only that step, any other
// error is returned.
func Settle(report *status.Report, result status.Result, err error) error {
	var found *status.Error
	switch {
	case errors.As(err, &found):
		report.Set(found.Result)
		return nil
	case err != nil:
		return err
	}
	if result.Type == "" {
		return fmt.Errorf("a step reported nothing")
	}
	report.Set(result)
	return nil
}

// SettleWorkload sorts the outcome of a step that brings up the pods of a Deployment into the report. It returns the
// Deployment, or nil.
func (c Cluster) SettleWorkload(ctx context.Context, report *status.Report, conditionType, namespace, name string, result status.Result, err error) (*appsv1.Deployment, error) {
	var found *status.Error
	if errors.As(err, &found) {
		result, err = found.Result, nil
	}
	if err != nil {
		return nil, err
	}
	live, pods, err := c.Observe(ctx, conditionType, namespace, name)
	if err != nil {
		return nil, err
	}
	pods, obstacle := apart(result, pods, live != nil)
	// Of two obstacles the one that needs the user counts.
	if obstacle != nil && report.Get(obstacle.Type).State != status.Stalled {
		report.Set(*obstacle)
	}
	report.Set(pods)
	return live, nil
}

// apart tells what is about pods from what keeps a change of the spec from them: Available stays true while they serve,
// and the obstacle goes into SpecHonored. observed is the result about the pods there are.
func apart(result, observed status.Result, running bool) (pods status.Result, obstacle *status.Result) {
	switch result.Reason {
	case operatorv1alpha1.ReasonReplicasUp, operatorv1alpha1.ReasonReplicasUnavailable, operatorv1alpha1.ReasonDeploymentUnavailable:
		return result, nil
	case reasonWaitingForCertificates: // which are a condition of their own
		if !running {
			observed.Message = result.Message
		}
		return observed, nil
	}
	result.Type = operatorv1alpha1.ConditionSpecHonored
	return observed, &result
}

func isOrAre(names []string) string {
	verb := " is"
	if len(names) > 1 {
		verb = " are"
	}
	return strings.Join(names, ", ") + verb
}
