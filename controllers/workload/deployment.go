// Package workload applies the Deployments and StatefulSets of an installation. It splits that into the steps of a reconcile, in order:
// observe, configure, prepare, gate, apply. Each is a step of the kinds that have workloads.
package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/rollout"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Deployment is the Deployment of one server during one reconcile, with its related objects.
type Deployment struct {
	Cluster   apply.Cluster
	Gate      Gate
	Report    *status.Report
	Now       func() time.Time
	Condition string // type of the condition about the pods
	Namespace string
	Name      string

	live    *appsv1.Deployment // nil while it does not exist
	problem status.PodProblem  // of its pods
	server  desired.Server
	files   apply.Files
	rollout status.Result  // of the gate
	blocked *status.Result // why the Deployment is not changed
}

// Observe reads the Deployment.
func (d *Deployment) Observe(ctx context.Context) (err error) {
	d.live, err = apply.Get[appsv1.Deployment](ctx, d.Cluster, d.Namespace, d.Name)
	if err != nil || d.live == nil || status.RolloutMessage(d.live, status.PodProblem{}) == "" {
		return err
	}
	d.problem, err = ObservePods(ctx, d.Cluster, d.Namespace, d.live.Spec.Selector)
	return err
}

// ObservePods returns why the pods of a workload do not become ready.
func ObservePods(ctx context.Context, c client.Reader, namespace string, selector *metav1.LabelSelector) (status.PodProblem, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels(selector.MatchLabels)); err != nil {
		return status.PodProblem{}, fmt.Errorf("listing the pods of %s: %w", labels.FormatLabels(selector.MatchLabels), err)
	}
	return status.FindPodProblem(pods.Items), nil
}

// SetDesired sets the desired objects of the server, and reads the Secrets and ConfigMaps that it depends on.
func (d *Deployment) SetDesired(ctx context.Context, server desired.Server) (err error) {
	d.server = server
	mounts := desired.PodMounts(&server.Deployment.Spec.Template.Spec)
	secrets := mounts.Secrets
	for _, bundle := range server.Bundles {
		secrets = append(secrets, bundle.Sources()...)
	}
	d.files, err = d.Cluster.ReadFiles(ctx, d.Namespace, secrets, mounts.ConfigMaps)
	return err
}

// Live returns the Deployment as observed or, after Apply, as applied; nil while it does not exist.
func (d *Deployment) Live() *appsv1.Deployment { return d.live }

// IsAvailable reports whether a pod serves.
func (d *Deployment) IsAvailable() bool { return d.live != nil && d.live.Status.AvailableReplicas > 0 }

// ReportLive reports on the pods of a Deployment that is not changed.
func (d *Deployment) ReportLive() { d.Report.Set(d.available()) }

// available is the result about the pods that serve.
func (d *Deployment) available() status.Result {
	return status.DeploymentResult(d.Condition, d.Name, d.live, d.problem, d.Now())
}

// Configure applies all objects of the server except its pods: Service, kubeconfigs, configuration and bundles.
func (d *Deployment) Configure(ctx context.Context) error {
	for _, object := range d.server.Objects {
		if done, err := d.blockOnError(d.Cluster.ApplyObject(ctx, d.Condition, object)); done {
			return err
		}
		d.files.Add(object)
	}
	for _, bundle := range d.server.Bundles {
		merged, err := d.files.MergeBundle(d.Condition, d.Namespace, bundle)
		if done, err := d.blockOnError(err); done {
			return err
		}
		bundle.Secret.Data = map[string][]byte{corev1.TLSCertKey: merged}
		if done, err := d.blockOnError(d.Cluster.ApplyObject(ctx, d.Condition, bundle.Secret)); done {
			return err
		}
		d.files.Add(bundle.Secret)
	}
	return nil
}

// FindMissing returns a result about the objects that the user has to create before the pods can start, independent of their other
// dependencies. It has no type if all exist. expected are Secrets that cert-manager creates; without them it checks nothing.
func (d *Deployment) FindMissing(expected []string) status.Result {
	if d.server.Deployment == nil || len(expected) == 0 {
		return status.Result{}
	}
	mounts := desired.PodMounts(&d.server.Deployment.Spec.Template.Spec)
	isMade := func(name string) bool {
		return slices.Contains(expected, name) ||
			slices.ContainsFunc(d.server.Bundles, func(bundle desired.Bundle) bool { return bundle.Secret.Name == name }) ||
			slices.ContainsFunc(d.server.Objects, func(object client.Object) bool { return object.GetName() == name })
	}
	mounts.Secrets = slices.DeleteFunc(slices.Clone(mounts.Secrets), isMade)
	mounts.ConfigMaps = slices.DeleteFunc(slices.Clone(mounts.ConfigMaps), isMade)
	if _, missing := d.files.Revisions(mounts); len(missing) > 0 {
		return d.notFound(operatorv1alpha1.ConditionSpecHonored, missing)
	}
	return status.Result{}
}

func (d *Deployment) notFound(condition string, missing []string) status.Result {
	return status.Wait(condition, operatorv1alpha1.ReasonReferenceNotFound,
		"%s missing in namespace %s, which the pods of %s mount: create those that the operator does not create", joinWithVerb(missing), d.Namespace, d.Name)
}

// Prepare checks the prerequisites of the pods. While one is not satisfied no pod starts and no rollout begins, and running pods continue
// to run.
func (d *Deployment) Prepare(prerequisites ...status.Result) {
	if d.blocked != nil {
		return
	}
	template := &d.server.Deployment.Spec.Template
	if conflict := desired.VolumeConflict(&template.Spec); conflict != "" {
		d.setBlocked(status.Stall(d.Condition, "InvalidSpec", "%s", conflict))
		return
	}
	for _, prerequisite := range prerequisites {
		switch {
		case prerequisite.State == status.Satisfied:
			continue
		case d.live != nil:
			d.setBlocked(d.available())
		default:
			d.setBlocked(status.Wait(d.Condition, operatorv1alpha1.ReasonDeploymentUnavailable, "waiting for %s: %s", prerequisite.Type, prerequisite.Message))
		}
		return
	}
	revisions, missing := d.files.Revisions(desired.PodMounts(&template.Spec))
	if len(missing) > 0 {
		d.setBlocked(d.notFound(d.Condition, missing))
		return
	}
	desired.LabelRevisions(template, revisions)
}

// AdmitRollout checks with the gate whether the pods may be replaced. Until they may, the Deployment keeps its pod
// template.
func (d *Deployment) AdmitRollout(ctx context.Context) error {
	if d.blocked != nil {
		return nil
	}
	missing := ""
	if d.live != nil {
		missing = status.RolloutMessage(d.live, d.problem)
	}
	result, err := AdmitDeployment(ctx, d.Gate, d.live, d.server.Deployment, missing)
	d.rollout = result
	d.Report.SetWorst(result)
	return err
}

// Apply applies the Deployment, with the pod template that the gate admitted, and reports on the pods.
func (d *Deployment) Apply(ctx context.Context) error {
	if d.blocked == nil {
		if err := d.apply(ctx); err != nil {
			return err
		}
	}
	d.Report.SetWorst(replacementResult(d.rollout, d.live, d.problem))
	live := d.available()
	result := live
	if d.blocked != nil {
		result = *d.blocked
	}
	pods, obstacle := splitResult(result, live, d.live != nil)
	// Of two obstacles the one that requires the user takes precedence. If it is one of several mistakes, they are reported together.
	if obstacle != nil {
		if have := d.Report.Get(obstacle.Type); have.State != status.Stalled && !strings.Contains(have.Message, obstacle.Message) {
			d.Report.Set(*obstacle)
		}
	}
	d.Report.Set(pods)
	return nil
}

func (d *Deployment) apply(ctx context.Context) error {
	if budget := desired.DisruptionBudget(d.server.Deployment); budget != nil {
		if done, err := d.blockOnError(d.Cluster.ApplyObject(ctx, d.Condition, budget)); done {
			return err
		}
	}
	if done, err := d.blockOnError(d.Cluster.ApplyDeployment(ctx, d.Condition, d.live, d.server.Deployment)); done {
		return err
	}
	d.live = d.server.Deployment
	return nil
}

// replacementResult reports on pods that are being replaced without the slot: immediately, because the user requested it, or because no
// pod was ready. admitted is the result of the gate, which takes precedence if it is not satisfied.
func replacementResult(admitted status.Result, live *appsv1.Deployment, problem status.PodProblem) status.Result {
	if admitted.State != status.Satisfied || live == nil || !status.HasOldPods(live) {
		return status.Result{}
	}
	message := status.RolloutMessage(live, problem)
	if status.ProgressDeadlineExceeded(live) {
		return status.Stall(operatorv1alpha1.ConditionRolledOut, rollout.ReasonStopped, "%s. Correct the spec, or put back what it was", message)
	}
	return status.Wait(operatorv1alpha1.ConditionRolledOut, rollout.ReasonRollingOut, "rolling out: %s", message)
}

// blockOnError reports whether an error ends a step. A result in the error blocks the following steps; it returns any other error.
func (d *Deployment) blockOnError(err error) (done bool, transient error) {
	var statusErr *status.Error
	if errors.As(err, &statusErr) {
		d.setBlocked(statusErr.Result)
		return true, nil
	}
	return err != nil, err
}

func (d *Deployment) setBlocked(result status.Result) { d.blocked = &result }

// splitResult separates the state of the pods from the reason that prevents a change of the spec: Available remains True while the pods
// serve, and SpecHonored reports the obstacle. live is the result about the existing pods.
func splitResult(result, live status.Result, running bool) (pods status.Result, obstacle *status.Result) {
	switch result.Reason {
	case operatorv1alpha1.ReasonReplicasUp, operatorv1alpha1.ReasonReplicasUnavailable, operatorv1alpha1.ReasonDeploymentUnavailable:
		return result, nil
	case apply.ReasonWaitingForCertificates: // these have their own condition
		if !running {
			live.Message = result.Message
		}
		return live, nil
	}
	result.Type = operatorv1alpha1.ConditionSpecHonored
	return live, &result
}

func joinWithVerb(names []string) string {
	verb := " is"
	if len(names) > 1 {
		verb = " are"
	}
	return strings.Join(names, ", ") + verb
}
