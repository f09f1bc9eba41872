package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// fieldManager is the field manager of writes of tools.
const fieldManager = "infrastructure-mcp"

// waiting is the argument of tools that can wait.
type waiting struct {
	WaitSeconds int `json:"waitSeconds,omitempty" jsonschema:"how many seconds to wait for the end of the change; 0 returns at once. Progress is reported meanwhile"`
}

func (w waiting) wait() time.Duration { return time.Duration(w.WaitSeconds) * time.Second }

type provisionArguments struct {
	inWorkspace
	Template string         `json:"template" jsonschema:"the name of the template"`
	Name     string         `json:"name" jsonschema:"the name of the new instance: lower-case letters, digits and '-'"`
	Values   map[string]any `json:"values" jsonschema:"what to order, as valuesSchema of infrastructure__describe_template says"`
	DryRun   bool           `json:"dryRun,omitempty" jsonschema:"only check whether the values are accepted"`
	waiting
}

// change is the result of a change of an instance.
type change struct {
	instanceSummary
	instanceContent
	DryRun   bool `json:"dryRun,omitempty" jsonschema:"nothing was changed"`
	TimedOut bool `json:"timedOut,omitempty" jsonschema:"the change goes on: call infrastructure__get_instance later"`
}

var provision = tool[provisionArguments, change]{
	name: "provision", title: "Order an instance", annotations: additive,
	description: "Create an instance from a template in a workspace. The values are validated first; if they are refused, nothing is created, and the error names each field. With waitSeconds, waits until the instance is Ready or has failed.",
	attempt: func(in provisionArguments) string {
		return fmt.Sprintf("provision %q from template %q in workspace %q", shorten(in.Name), shorten(in.Template), shorten(in.Workspace))
	},
	run: func(ctx context.Context, c *call, in provisionArguments) (change, string, error) {
		if err := checkName("name", in.Name); err != nil {
			return change{}, "", err
		}
		template, err := c.template(ctx, in.Template)
		if err != nil {
			return change{}, "", err
		}
		k, err := c.kindOfTemplate(template)
		if err != nil {
			return change{}, "", err
		}
		values, err := normalize(in.Values)
		if err != nil {
			return change{}, "", err
		}
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": c.group + "/" + k.version, "kind": k.kind, "metadata": map[string]any{"name": in.Name}, "spec": values,
		}}
		object, err = dryRunFirst(in.DryRun, func(dryRun []string) (*unstructured.Unstructured, error) {
			return c.instances(k).Create(ctx, object, metav1.CreateOptions{DryRun: dryRun, FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})
		})
		if err != nil {
			return change{}, "", err
		}
		return c.changed(ctx, k, object, in.DryRun, in.wait(), "created")
	},
}

type updateInstanceArguments struct {
	inWorkspace
	ofInstance
	Values map[string]any `json:"values" jsonschema:"the values to change, merged into the present ones; null removes a value, lists are replaced"`
	DryRun bool           `json:"dryRun,omitempty" jsonschema:"only check whether the values are accepted"`
	waiting
}

var updateInstance = tool[updateInstanceArguments, change]{
	name: "update_instance", title: "Change an instance", annotations: overwrite,
	description: "Change values of an instance. Only the given values change. They are validated first; if they are refused, nothing is changed, and the error names each field. With waitSeconds, waits until the instance is Ready with the new values, or has failed.",
	attempt:     func(in updateInstanceArguments) string { return in.attempt("update", in.inWorkspace) },
	run: func(ctx context.Context, c *call, in updateInstanceArguments) (change, string, error) {
		if err := checkName("name", in.Name); err != nil {
			return change{}, "", err
		}
		k, err := c.kindOf(ctx, in.Kind)
		if err != nil {
			return change{}, "", err
		}
		patch, err := json.Marshal(map[string]any{"spec": in.Values})
		if err != nil {
			return change{}, "", err
		}
		object, err := dryRunFirst(in.DryRun, func(dryRun []string) (*unstructured.Unstructured, error) {
			return c.instances(k).Patch(ctx, in.Name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun, FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})
		})
		if err != nil {
			return change{}, "", err
		}
		return c.changed(ctx, k, object, in.DryRun, in.wait(), "changed")
	},
}

// dryRunFirst makes a change after the server has accepted it in a dry run.
func dryRunFirst(only bool, write func(dryRun []string) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	object, err := write([]string{metav1.DryRunAll})
	if err != nil || only {
		return object, err
	}
	return write(nil)
}

// changed returns the result of a change, after waiting until the change has completed or failed.
func (c *call) changed(ctx context.Context, k kind, object *unstructured.Unstructured, dryRun bool, wait time.Duration, verb string) (change, string, error) {
	described := describe(k, object)
	out := change{instanceSummary: described.instanceSummary, instanceContent: described.instanceContent, DryRun: dryRun}
	if dryRun {
		return out, "The values are accepted. Nothing was " + verb + ".", nil
	}
	if wait == 0 {
		return out, fmt.Sprintf("%s %s was %s. Call infrastructure__get_instance to see when it is Ready.", k.kind, object.GetName(), verb), nil
	}
	last, ended := c.wait(ctx, k, object, wait, func(d *instanceDetails) bool { return d.Ready || d.hasFailed(object.GetGeneration()) })
	if last == nil { // the instance is gone
		return out, fmt.Sprintf("%s %s was %s, and then deleted by somebody else.", k.kind, object.GetName(), verb), nil
	}
	out.instanceSummary, out.instanceContent, out.TimedOut = last.instanceSummary, last.instanceContent, !ended
	if !ended {
		return out, fmt.Sprintf("%s %s was %s and is not Ready yet, which goes on. Call infrastructure__get_instance later. %s", k.kind, object.GetName(), verb, last.sentence()), nil
	}
	return out, fmt.Sprintf("%s %s was %s. %s", k.kind, object.GetName(), verb, last.sentence()), nil
}

type deleteInstanceArguments struct {
	inWorkspace
	ofInstance
	Confirm string `json:"confirm" jsonschema:"the name of the instance again, once the user has confirmed that it and its data shall be deleted"`
	waiting
}

// deletion is the result of a deletion.
type deletion struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Gone bool   `json:"gone" jsonschema:"whether everything the instance was made of is deleted; else this goes on"`
}

var deleteInstance = tool[deleteInstanceArguments, deletion]{
	name: "delete_instance", title: "Delete an instance", annotations: overwrite,
	description: "Delete an instance and everything it is made of, including its data. This cannot be undone: ask the user first, and repeat the name in confirm. With waitSeconds, waits until everything is deleted.",
	attempt:     func(in deleteInstanceArguments) string { return in.attempt("delete", in.inWorkspace) },
	run: func(ctx context.Context, c *call, in deleteInstanceArguments) (deletion, string, error) {
		if in.Confirm != in.Name {
			return deletion{}, "", &argumentError{"confirm", fmt.Sprintf("it has to be the name of the instance, %q, as a confirmation by the user", shorten(in.Name))}
		}
		k, object, err := c.instance(ctx, in.ofInstance)
		if err != nil {
			return deletion{}, "", err
		}
		uid := object.GetUID()
		if err := c.instances(k).Delete(ctx, in.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
			return deletion{}, "", err
		}
		out := deletion{Kind: k.kind, Name: in.Name}
		if in.wait() > 0 {
			last, _ := c.wait(ctx, k, object, in.wait(), func(*instanceDetails) bool { return false })
			out.Gone = last == nil
		}
		if out.Gone {
			return out, fmt.Sprintf("%s %s is deleted.", k.kind, in.Name), nil
		}
		return out, fmt.Sprintf("%s %s is being deleted; infrastructure__list_instances shows it until that has ended.", k.kind, in.Name), nil
	},
}

// normalize converts numbers in values to the types that the API machinery uses.
func normalize(values map[string]any) (map[string]any, error) {
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, utiljson.Unmarshal(text, &out)
}
