package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// maxKinds bounds the kinds that one call lists.
const maxKinds = 50

type listInstancesArguments struct {
	inWorkspace
	Kind string `json:"kind,omitempty" jsonschema:"list instances of this kind only; the name of a template selects its kind"`
	page
}

// instanceSummary is a row of the list of instances.
type instanceSummary struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Phase   string `json:"phase" jsonschema:"Pending, Provisioning, Ready, Failed, Deleting or TemplateRemoved"`
	Ready   bool   `json:"ready" jsonschema:"whether the instance can be used, as it is declared now"`
	Message string `json:"message,omitempty"`
	Created string `json:"created"`

	observedGeneration int64
}

type instanceList struct {
	Instances    []instanceSummary `json:"instances"`
	Count        int               `json:"count" jsonschema:"the number of instances in this page"`
	NotPermitted []string          `json:"notPermitted,omitempty" jsonschema:"kinds that the user may not list, so that their instances are missing here"`
	Continue     string            `json:"continue,omitempty" jsonschema:"set if there are more: pass it to get the next page"`
}

var listInstances = tool[listInstancesArguments, instanceList]{
	name: "list_instances", title: "List instances", annotations: readOnly,
	description: "List the instances in a workspace, of all kinds or of one, with their phase. The result is complete when it has no continue.",
	attempt: func(in listInstancesArguments) string {
		return fmt.Sprintf("list the instances in workspace %q", shorten(in.Workspace))
	},
	run: func(ctx context.Context, c *call, in listInstancesArguments) (instanceList, string, error) {
		from, err := decodePosition(in.Continue)
		if err != nil {
			return instanceList{}, "", err
		}
		var kinds []kind
		if in.Kind == "" {
			kinds, err = c.kinds(ctx)
		} else {
			kinds = make([]kind, 1)
			kinds[0], err = c.kindOf(ctx, in.Kind)
		}
		if err != nil {
			return instanceList{}, "", err
		}
		out, err := c.list(ctx, kinds, from, in.limit())
		if err != nil {
			return instanceList{}, "", err
		}
		out.Count = len(out.Instances)
		return out, fmt.Sprintf("%s in workspace %s.%s", count(out.Count, "instance"), c.workspace, more(out.Continue)), nil
	},
}

// list returns up to limit instances of kinds, which must be sorted by resource, starting at a position.
func (c *client) list(ctx context.Context, kinds []kind, from position, limit int) (instanceList, error) {
	out := instanceList{Instances: []instanceSummary{}}
	kinds = slices.DeleteFunc(kinds, func(k kind) bool { return k.resource < from.Resource })
	var refused error
	for i, k := range kinds {
		if i == maxKinds || len(out.Instances) == limit {
			out.Continue = position{Resource: k.resource}.encode()
			break
		}
		options := metav1.ListOptions{Limit: int64(limit - len(out.Instances))}
		if k.resource == from.Resource {
			options.Continue = from.Continue
		}
		list, err := c.instances(k).List(ctx, options)
		if apierrors.IsForbidden(err) {
			out.NotPermitted, refused = append(out.NotPermitted, k.kind), err
			continue
		}
		if err != nil {
			return instanceList{}, err
		}
		for j := range list.Items {
			out.Instances = append(out.Instances, summarize(k, &list.Items[j]))
		}
		if token := list.GetContinue(); token != "" {
			out.Continue = position{k.resource, token}.encode()
			break
		}
	}
	if len(kinds) > 0 && len(out.NotPermitted) == len(kinds) {
		return instanceList{}, refused
	}
	return out, nil
}

// connection names the Secret with the connection of an instance.
type connection struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// condition is a condition of an instance.
type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// instanceDetails describes an instance.
type instanceDetails struct {
	instanceSummary
	instanceContent
}

// instanceContent is what an instance has in addition to its summary.
type instanceContent struct {
	Values           map[string]any `json:"values" jsonschema:"what was ordered"`
	Outputs          map[string]any `json:"outputs,omitempty" jsonschema:"what the instance reports, such as its endpoint"`
	Conditions       []condition    `json:"conditions,omitempty"`
	ConnectionSecret *connection    `json:"connectionSecret,omitempty" jsonschema:"the Secret with the credentials of the instance, in the workspace; its content is not read here"`
}

type getInstanceArguments struct {
	inWorkspace
	ofInstance
}

var getInstance = tool[getInstanceArguments, instanceDetails]{
	name: "get_instance", title: "Get an instance", annotations: readOnly,
	description: "Get an instance: its phase, what was ordered, its outputs such as an endpoint, conditions that say what is in the way, and the name of the Secret with its credentials. The content of the Secret is never returned.",
	attempt:     func(in getInstanceArguments) string { return in.attempt("get", in.inWorkspace) },
	run: func(ctx context.Context, c *call, in getInstanceArguments) (instanceDetails, string, error) {
		k, object, err := c.instance(ctx, in.ofInstance)
		if err != nil {
			return instanceDetails{}, "", err
		}
		out := describe(k, object)
		return *out, out.sentence(), nil
	},
}

// attempt describes what a tool tries to do with the instance.
func (i ofInstance) attempt(verb string, in inWorkspace) string {
	return fmt.Sprintf("%s %s %q in workspace %q", verb, shorten(i.Kind), shorten(i.Name), shorten(in.Workspace))
}

// instance reads an instance.
func (c *client) instance(ctx context.Context, in ofInstance) (kind, *unstructured.Unstructured, error) {
	if err := checkName("name", in.Name); err != nil {
		return kind{}, nil, err
	}
	k, err := c.kindOf(ctx, in.Kind)
	if err != nil {
		return kind{}, nil, err
	}
	object, err := c.instances(k).Get(ctx, in.Name, metav1.GetOptions{})
	return k, object, err
}

func summarize(k kind, object *unstructured.Unstructured) instanceSummary {
	out := instanceSummary{Kind: k.kind, Name: object.GetName(), Created: object.GetCreationTimestamp().UTC().Format("2006-01-02T15:04:05Z")}
	out.Phase, _, _ = unstructured.NestedString(object.Object, "status", "phase")
	out.Message, _, _ = unstructured.NestedString(object.Object, "status", "message")
	out.observedGeneration, _, _ = unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	switch {
	case object.GetDeletionTimestamp() != nil && out.Phase != string(infrastructurev1alpha1.PhaseTemplateRemoved):
		out.Phase = string(infrastructurev1alpha1.PhaseDeleting)
	case out.Phase == "":
		out.Phase = string(infrastructurev1alpha1.PhasePending)
	}
	out.Ready = out.Phase == string(infrastructurev1alpha1.PhaseReady) && out.observedGeneration == object.GetGeneration()
	return out
}

// describe returns an instance with its status. All status fields that are not common to instances are outputs.
func describe(k kind, object *unstructured.Unstructured) *instanceDetails {
	out := &instanceDetails{summarize(k, object), instanceContent{Values: map[string]any{}}}
	if values, ok := object.Object["spec"].(map[string]any); ok {
		out.Values = values
	}
	status, _ := object.Object["status"].(map[string]any)
	for name, value := range status {
		switch name {
		case "phase", "message", "observedGeneration":
		case "conditions":
			items, _ := value.([]any)
			for _, item := range items {
				var found condition
				if fields, ok := item.(map[string]any); ok && runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &found) == nil {
					out.Conditions = append(out.Conditions, found)
				}
			}
		case "connectionSecret":
			fields, _ := value.(map[string]any)
			namespace, _ := fields["namespace"].(string)
			secret, _ := fields["name"].(string)
			if secret != "" {
				out.ConnectionSecret = &connection{namespace, secret}
			}
		default:
			if out.Outputs == nil {
				out.Outputs = map[string]any{}
			}
			out.Outputs[name] = value
		}
	}
	return out
}

// sentence describes the state of an instance.
func (d *instanceDetails) sentence() string {
	text := fmt.Sprintf("%s %s is %s", d.Kind, d.Name, d.Phase)
	if d.Message != "" {
		text += ": " + strings.TrimSuffix(d.Message, ".")
	}
	text += "."
	if d.ConnectionSecret != nil {
		text += fmt.Sprintf(" Its credentials are in the Secret %s/%s of the workspace.", d.ConnectionSecret.Namespace, d.ConnectionSecret.Name)
	}
	return text
}
