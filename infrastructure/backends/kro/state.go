package kro

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/kubernetes-sigs/kro/pkg/graph/fieldpath"
	kroruntime "github.com/kubernetes-sigs/kro/pkg/runtime"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
)

// marks is the prefix of labels that the evaluation adds to objects of collections. The backend does not use them.
const marks = "kro.run/"

// project returns the variable schema of expressions: a copy of the instance in the namespace of its tenant, which contains only the spec of
// what the tenant has set. Its UID also depends on the UID of the namespace: expressions derive passwords from it, and everybody who may
// read the instance knows the UID that the tenant sees.
func project(inst instance.Instance, namespace types.UID) *unstructured.Unstructured {
	object := inst.Object
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	space, err := uuid.Parse(string(namespace))
	if err != nil {
		space = uuid.NewSHA1(uuid.NameSpaceOID, []byte(namespace))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(),
		"metadata": map[string]any{
			"name": inst.RuntimeName(), "namespace": runtimecluster.Namespace(inst.Cluster),
			"uid": uuid.NewSHA1(space, []byte(object.GetUID())).String(),
		},
		"spec": spec,
	}}
}

// withoutMarks returns an object without the labels of the evaluation.
func withoutMarks(object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	labels := object.GetLabels()
	for key := range labels {
		if strings.HasPrefix(key, marks) {
			delete(labels, key)
		}
	}
	if len(labels) == 0 {
		labels = nil
	}
	object.SetLabels(labels)
	return object
}

// state returns the state of the instance.
func (p *pass) state(ctx context.Context, complete bool) instance.State {
	ready, total, unclear := 0, 0, ""
	for _, node := range p.runtime.Nodes() {
		if p.ignored[node.Spec.Meta.ID] {
			continue
		}
		total++
		err := node.CheckReadiness()
		switch {
		case err == nil:
			ready++
		case !errors.Is(err, kroruntime.ErrWaitingForReadiness) && !kroruntime.IsDataPending(err):
			// The error may change when the object has more fields.
			unclear = fmt.Sprintf("readyWhen of resource %s: %v", node.Spec.Meta.ID, err)
			log.FromContext(ctx).Info("A condition cannot be evaluated", "template", p.set.Template, "err", err)
		}
	}
	interval := pendingInterval
	if p.reads {
		interval = readingInterval
	}
	if !complete || ready < total {
		state := runtimecluster.Progress(ready, total, interval)
		state.Mistake = unclear
		return state
	}
	outputs, connection, pending, err := p.outputs()
	if err != nil {
		return runtimecluster.InvalidTemplate(err.Error())
	}
	if len(pending) > 0 {
		return runtimecluster.Incomplete(strings.Join(pending, ", ")+" needs a field or an element that is not there", interval)
	}
	return instance.State{Phase: infrastructurev1alpha1.PhaseReady, Outputs: outputs, Connection: connection, RecheckAfter: readyInterval}
}

// outputs returns the outputs and the connection, or the fields of the Template whose values are not known yet.
func (p *pass) outputs() (outputs map[string]any, connection map[string]string, pending []string, err error) {
	desired, err := p.runtime.Instance().GetDesired()
	if err != nil {
		return nil, nil, nil, p.mistake(err)
	}
	status, _, _ := unstructured.NestedMap(desired[0].Object, "status")
	for _, variable := range p.runtime.Instance().Spec.Variables {
		if !p.isIgnored(variable.Expression.References) && !isSet(desired[0].Object, variable.Path) {
			pending = append(pending, configField(variable.Path))
		}
	}
	if len(pending) > 0 {
		slices.Sort(pending)
		return nil, nil, slices.Compact(pending), nil
	}
	found, _, _ := unstructured.NestedMap(status, outputsField)
	values, _, _ := unstructured.NestedMap(status, connectionField)
	connection = make(map[string]string, len(values))
	for key, value := range values {
		text, ok := value.(string)
		if !ok {
			text = fmt.Sprint(value)
		}
		connection[key] = text
	}
	return merge(found, p.constants), connection, nil, nil
}

// mistake returns an error with the field whose expression failed. It omits the cause, which may quote values of a connection.
func (p *pass) mistake(err error) error {
	for _, variable := range p.runtime.Instance().Spec.Variables {
		if text := variable.Expression.UserExpression(); strings.Contains(err.Error(), strconv.Quote(text)) {
			return fmt.Errorf("%s: %s cannot be evaluated", configField(variable.Path), text)
		}
	}
	return errors.New("spec.backendConfig.statusMapping or connection cannot be evaluated")
}

// configField returns the field of a Template that defines an output, or a value of the connection.
func configField(path string) string {
	path = strings.TrimPrefix(path, "status.")
	if rest, ok := strings.CutPrefix(path, outputsField); ok {
		return root().Child("statusMapping").String() + rest
	}
	return root().Child(path).String()
}

// isIgnored reports whether an expression refers to a resource that the instance does not include.
func (p *pass) isIgnored(references []string) bool {
	return slices.ContainsFunc(references, func(id string) bool { return p.ignored[id] })
}

// isSet reports whether an object has a field.
func isSet(object any, path string) bool {
	segments, err := fieldpath.Parse(path)
	if err != nil {
		return false
	}
	for _, segment := range segments {
		if segment.Index >= 0 {
			list, ok := object.([]any)
			if !ok || segment.Index >= len(list) {
				return false
			}
			object = list[segment.Index]
			continue
		}
		fields, ok := object.(map[string]any)
		if !ok {
			return false
		}
		if object, ok = fields[segment.Name]; !ok {
			return false
		}
	}
	return true
}
