package workload

import (
	"context"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/status"
)

// templateAnnotation, on a Deployment or StatefulSet, contains a hash of the last applied pod template. It distinguishes changes of the
// pods from other changes, which no gate delays.
const templateAnnotation = "operator.kcp.io/template"

// Pods are the observed and the desired pods of an existing Deployment or StatefulSet.
type Pods struct {
	Live     client.Object
	Change   bool   // the desired template replaces the pods
	Revision string // hash of the desired template
	Missing  string // why not all pods run Live's newest revision and are ready; "" if they do
	Serving  bool   // at least one pod is ready
}

// Gate decides whether pods may be replaced. Every reconcile of an existing workload calls it, even without a change, so that it can
// track which components match their spec. The reconcile does not change the pods of a workload that is not admitted, and applies all
// other changes. The result is the condition RolledOut.
type Gate interface {
	Admit(ctx context.Context, pods Pods) (admitted bool, result status.Result, err error)
}

// AdmitDeployment checks with the gate whether the pods of a Deployment may be replaced. Until then, desired gets the pod template of
// live, which is nil while the Deployment does not exist. missing is why not all pods of live run its newest revision and are ready, or
// "".
func AdmitDeployment(ctx context.Context, gate Gate, live, desired *appsv1.Deployment, missing string) (status.Result, error) {
	if live == nil {
		return status.Result{}, setTemplateHash(desired, &desired.Spec.Template)
	}
	pods := Pods{Live: live, Missing: missing, Serving: live.Status.ReadyReplicas > 0}
	return admitTemplate(ctx, gate, pods, &live.Spec.Template, desired, &desired.Spec.Template)
}

// AdmitStatefulSet is AdmitDeployment for a StatefulSet.
func AdmitStatefulSet(ctx context.Context, gate Gate, live, desired *appsv1.StatefulSet, missing string) (status.Result, error) {
	if live == nil {
		return status.Result{}, setTemplateHash(desired, &desired.Spec.Template)
	}
	pods := Pods{Live: live, Missing: missing, Serving: live.Status.ReadyReplicas > 0}
	return admitTemplate(ctx, gate, pods, &live.Spec.Template, desired, &desired.Spec.Template)
}

// admitTemplate stamps the desired pod template and checks with the gate whether it may replace the live one. If not,
// the desired object gets the live template.
func admitTemplate(ctx context.Context, gate Gate, pods Pods, liveTemplate *corev1.PodTemplateSpec, desired client.Object, template *corev1.PodTemplateSpec) (status.Result, error) {
	if err := setTemplateHash(desired, template); err != nil || gate == nil {
		return status.Result{}, err
	}
	pods.Revision = desired.GetAnnotations()[templateAnnotation]
	var err error
	if pods.Change, err = replacesPods(pods.Live, liveTemplate, pods.Revision, template); err != nil {
		return status.Result{}, err
	}
	admitted, result, err := gate.Admit(ctx, pods)
	if err != nil || admitted || !pods.Change {
		return result, err
	}
	keepTemplate(pods.Live, liveTemplate, desired, template)
	return result, nil
}

// HoldStatefulSet gives desired the pod template of live, and reports to the gate that no pods are to be replaced.
func HoldStatefulSet(ctx context.Context, gate Gate, live, desired *appsv1.StatefulSet, missing string) (status.Result, error) {
	keepTemplate(live, &live.Spec.Template, desired, &desired.Spec.Template)
	if gate == nil {
		return status.Result{}, nil
	}
	_, result, err := gate.Admit(ctx, Pods{
		Live: live, Missing: missing, Serving: live.Status.ReadyReplicas > 0, Revision: live.Annotations[templateAnnotation],
	})
	return result, err
}

// keepTemplate gives the desired object the live template with its hash.
func keepTemplate(live client.Object, liveTemplate *corev1.PodTemplateSpec, desired client.Object, template *corev1.PodTemplateSpec) {
	liveTemplate.DeepCopyInto(template)
	annotations := maps.Clone(desired.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, templateAnnotation)
	if hash, ok := live.GetAnnotations()[templateAnnotation]; ok {
		annotations[templateAnnotation] = hash
	}
	desired.SetAnnotations(annotations)
}

// setTemplateHash sets the hash of a pod template on the object that holds it.
func setTemplateHash(object client.Object, template *corev1.PodTemplateSpec) error {
	hash, err := apply.TemplateHash(template)
	if err != nil {
		return err
	}
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[templateAnnotation] = hash
	object.SetAnnotations(annotations)
	return nil
}

// replacesPods reports whether a desired template differs from the live one. It also reverts a template that another client changed,
// which replaces pods. Workloads without the annotation are compared field by field.
func replacesPods(live client.Object, liveTemplate *corev1.PodTemplateSpec, revision string, template *corev1.PodTemplateSpec) (bool, error) {
	if hash, ok := live.GetAnnotations()[templateAnnotation]; ok && hash != revision {
		return true, nil
	}
	covered, err := apply.TemplateCovers(liveTemplate, template)
	return !covered, err
}
