package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

type listTemplatesArguments struct {
	inWorkspace
	page
}

// templateSummary is a row of the catalogue.
type templateSummary struct {
	Name        string `json:"name" jsonschema:"the name that infrastructure__describe_template and infrastructure__provision take"`
	DisplayName string `json:"displayName"`
	Description string `json:"description,omitempty"`
	Category    string `json:"category"`
	Version     string `json:"version"`
	Kind        string `json:"kind" jsonschema:"the kind of the instances"`
}

type templateList struct {
	Templates []templateSummary `json:"templates"`
	Continue  string            `json:"continue,omitempty" jsonschema:"set if there are more: pass it to get the next page"`
}

var listTemplates = tool[listTemplatesArguments, templateList]{
	name: "list_templates", title: "List what can be ordered", annotations: readOnly,
	description: "List the templates of the catalogue in a workspace: what can be ordered there, with name, description and kind. Call infrastructure__describe_template next, with the name of one.",
	attempt: func(in listTemplatesArguments) string {
		return fmt.Sprintf("list the templates in workspace %q", shorten(in.Workspace))
	},
	run: func(ctx context.Context, c *call, in listTemplatesArguments) (templateList, string, error) {
		if len(in.Continue) > maxToken {
			return templateList{}, "", errContinue
		}
		list, err := c.templates().List(ctx, metav1.ListOptions{Limit: int64(in.limit()), Continue: in.Continue})
		if err != nil {
			return templateList{}, "", err
		}
		out := templateList{Templates: []templateSummary{}, Continue: list.GetContinue()}
		for i := range list.Items {
			template, err := decodeTemplate(&list.Items[i])
			if err != nil {
				return templateList{}, "", err
			}
			out.Templates = append(out.Templates, summarizeTemplate(template))
		}
		return out, fmt.Sprintf("%s in workspace %s.%s", count(len(out.Templates), "template"), c.workspace, more(out.Continue)), nil
	},
}

type describeTemplateArguments struct {
	inWorkspace
	Template string `json:"template" jsonschema:"the name of the template"`
}

type templateDescription struct {
	templateSummary
	ValuesSchema  map[string]any `json:"valuesSchema" jsonschema:"the OpenAPI schema of the argument values of infrastructure__provision"`
	SampleValues  map[string]any `json:"sampleValues,omitempty" jsonschema:"an example of values"`
	Usage         string         `json:"usage,omitempty" jsonschema:"when and how to use the template"`
	Prerequisites []string       `json:"prerequisites,omitempty" jsonschema:"what must be there first"`
	Outputs       []string       `json:"outputs,omitempty" jsonschema:"what an instance reports when it is ready"`
}

var describeTemplate = tool[describeTemplateArguments, templateDescription]{
	name: "describe_template", title: "Describe a template", annotations: readOnly,
	description: "Describe a template of the catalogue: the schema of the values that an instance takes, an example, when to use it, what it needs, and what an instance reports when it is ready. Call it before infrastructure__provision.",
	attempt: func(in describeTemplateArguments) string {
		return fmt.Sprintf("describe template %q in workspace %q", shorten(in.Template), shorten(in.Workspace))
	},
	run: func(ctx context.Context, c *call, in describeTemplateArguments) (templateDescription, string, error) {
		template, err := c.template(ctx, in.Template)
		if err != nil {
			return templateDescription{}, "", err
		}
		out := templateDescription{templateSummary: summarizeTemplate(template)}
		if err := decodeValues(&template.Spec.Schema, &out.ValuesSchema); err != nil {
			return templateDescription{}, "", err
		}
		if err := decodeValues(template.Spec.SampleValues, &out.SampleValues); err != nil {
			return templateDescription{}, "", err
		}
		if agent := template.Spec.Agent; agent != nil {
			out.Usage, out.Prerequisites, out.Outputs = agent.Usage, agent.Prerequisites, agent.Outputs
		}
		return out, fmt.Sprintf("Template %s creates instances of kind %s. To order one, call infrastructure__provision with template %q, a name, and values that match valuesSchema.", out.Name, out.Kind, out.Name), nil
	},
}

// template reads a template of the catalogue.
func (c *client) template(ctx context.Context, name string) (*infrastructurev1alpha1.Template, error) {
	if err := checkName("template", name); err != nil {
		return nil, err
	}
	object, err := c.templates().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return decodeTemplate(object)
}

var (
	resourcePattern = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	versionPattern  = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
)

// kindOfTemplate returns the kind of the instances of a template. It validates the kind, which becomes a part of URLs.
func (c *client) kindOfTemplate(template *infrastructurev1alpha1.Template) (kind, error) {
	crd := template.Spec.InstanceCRD
	if crd.Group != c.group || !resourcePattern.MatchString(crd.Resource) || !versionPattern.MatchString(crd.Version) {
		return kind{}, &argumentError{"template", fmt.Sprintf("the catalogue of this workspace has no usable kind for %q", template.Name)}
	}
	return kind{crd.Kind, crd.Resource, crd.Version}, nil
}

func decodeTemplate(object *unstructured.Unstructured) (*infrastructurev1alpha1.Template, error) {
	template := &infrastructurev1alpha1.Template{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, template); err != nil {
		return nil, fmt.Errorf("template %q: %w", object.GetName(), err)
	}
	return template, nil
}

func summarizeTemplate(template *infrastructurev1alpha1.Template) templateSummary {
	out := templateSummary{
		Name: template.Name, DisplayName: template.Spec.DisplayName, Description: template.Spec.Description,
		Category: template.Spec.Category, Version: template.Spec.Version, Kind: template.Spec.InstanceCRD.Kind,
	}
	if out.Category == "" {
		out.Category = "Other"
	}
	return out
}

// decodeValues decodes an object of a template, if it is set.
func decodeValues(raw *runtime.RawExtension, into *map[string]any) error {
	if raw == nil || len(raw.Raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw.Raw, into)
}

// count returns a number of things in words.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// more returns the end of a sentence about a page.
func more(token string) string {
	if token == "" {
		return ""
	}
	return " There are more: call the tool again with continue."
}
