package apply

import (
	"context"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/status"
)

// templateAnnotation, on a Deployment or StatefulSet, holds a hash of the pod template that was applied last. By it a
// change of the pods is told from one of everything else, which no gate keeps waiting.
const templateAnnotation = "operator.kcp.io/template"

// Pods are the pods of a Deployment or StatefulSet that exists, as they are and as they are wanted.
type Pods struct {
	Live     client.Object
	Change   bool          // they would be replaced
	Revision string        // hash of the template that is wanted
	Ready    status.Result // whether all run Live's newest revision and are ready
	Serve    bool          // at least one is ready
}

// Gate decides whether pods may be replaced now. It is asked each time a workload that exists is brought up, changed or
// not, so that it knows who has come through. Without leave the pods stay as they are, and everything else about the
// workload is applied. The result is for the user.
type Gate interface {
	MayRoll(ctx context.Context, pods Pods) (leave bool, result status.Result, err error)
}

// gated asks the gate about a Deployment. When its pods may not be replaced, wanted gets the template of live.
func (c Cluster) gated(ctx context.Context, live, wanted *appsv1.Deployment) (status.Result, error) {
	pods := Pods{Live: live, Ready: status.ForDeployment("", live.Name, live), Serve: live.Status.ReadyReplicas > 0}
	return c.gate(ctx, pods, wanted, &live.Spec.Template, &wanted.Spec.Template)
}

// GatedStore asks the gate about a StatefulSet. When its pods may not be replaced, wanted gets the template of live. ready
// is the result about the pods of live.
func (c Cluster) GatedStore(ctx context.Context, live, wanted *appsv1.StatefulSet, ready status.Result) (status.Result, error) {
	if live == nil {
		return status.Result{}, stampTemplate(wanted, &wanted.Spec.Template)
	}
	pods := Pods{Live: live, Ready: ready, Serve: live.Status.ReadyReplicas > 0}
	return c.gate(ctx, pods, wanted, &live.Spec.Template, &wanted.Spec.Template)
}

func (c Cluster) gate(ctx context.Context, pods Pods, wanted client.Object, liveTemplate, wantedTemplate *corev1.PodTemplateSpec) (status.Result, error) {
	if err := stampTemplate(wanted, wantedTemplate); err != nil {
		return status.Result{}, err
	}
	if c.Gate == nil {
		return status.Result{}, nil
	}
	pods.Revision = wanted.GetAnnotations()[templateAnnotation]
	var err error
	if pods.Change, err = replaces(pods.Live, liveTemplate, wanted, wantedTemplate); err != nil {
		return status.Result{}, err
	}
	leave, result, err := c.Gate.MayRoll(ctx, pods)
	if err != nil || leave || !pods.Change {
		return result, err
	}
	liveTemplate.DeepCopyInto(wantedTemplate)
	annotations := maps.Clone(wanted.GetAnnotations())
	delete(annotations, templateAnnotation)
	if hash, ok := pods.Live.GetAnnotations()[templateAnnotation]; ok {
		annotations[templateAnnotation] = hash
	}
	wanted.SetAnnotations(annotations)
	return result, nil
}

// stampTemplate notes the hash of a template on the object that carries it.
func stampTemplate(object client.Object, template *corev1.PodTemplateSpec) error {
	intent, err := intentOf(&corev1.PodTemplate{Template: *template})
	if err != nil {
		return err
	}
	hash, err := hashOf(intent)
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

// replaces says whether a wanted template is another one than what runs. Where somebody else changed the template, it is
// put back, which replaces pods too. A workload from before templates were noted is compared field by field.
func replaces(live client.Object, liveTemplate *corev1.PodTemplateSpec, wanted client.Object, wantedTemplate *corev1.PodTemplateSpec) (bool, error) {
	have, noted := live.GetAnnotations()[templateAnnotation]
	if noted && have != wanted.GetAnnotations()[templateAnnotation] {
		return true, nil
	}
	intent, err := intentOf(&corev1.PodTemplate{Template: *wantedTemplate})
	if err != nil {
		return false, err
	}
	running, err := runtime.DefaultUnstructuredConverter.ToUnstructured(liveTemplate)
	if err != nil {
		return false, err
	}
	return !covers(running, intent.Object["template"]), nil
}
