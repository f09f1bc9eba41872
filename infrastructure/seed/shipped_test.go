package seed

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
)

func TestShippedTemplatesAreValidInEveryGroup(t *testing.T) {
	for _, group := range []string{infrastructurev1alpha1.GroupName, "infrastructure.example.org"} {
		templates, err := Shipped(group)
		if err != nil || len(templates) == 0 {
			t.Fatalf("%d templates, %v", len(templates), err)
		}
		for i := range templates {
			shipped := &templates[i]
			if want := group + "/" + infrastructurev1alpha1.Version; shipped.APIVersion != want || shipped.Kind != "Template" {
				t.Errorf("%s: is a %s of %s, want a Template of %s", shipped.Name, shipped.Kind, shipped.APIVersion, want)
			}
			if errs := template.Validate(shipped, group, "", slices.Delete(slices.Clone(templates), i, i+1)); len(errs) > 0 {
				t.Errorf("%s: %v", shipped.Name, errs)
			}
		}
	}
}

// The image of an application is any, so that what it can use of a node is bounded.
func TestApplicationIsBounded(t *testing.T) {
	templates, err := Shipped(infrastructurev1alpha1.GroupName)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(templates, func(t infrastructurev1alpha1.Template) bool { return t.Name == "application" })
	var config struct {
		Resources []struct {
			ID       string `json:"id"`
			Template struct {
				Spec struct {
					RevisionHistoryLimit int `json:"revisionHistoryLimit"`
					Template             struct {
						Spec struct {
							Containers []struct {
								Resources struct{ Limits, Requests map[string]string }
							}
							Volumes []struct{ EmptyDir map[string]string }
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(templates[i].Spec.BackendConfig.Raw, &config); err != nil {
		t.Fatal(err)
	}
	for _, resource := range config.Resources {
		if resource.ID != "deployment" {
			continue
		}
		pod := resource.Template.Spec.Template.Spec
		limits := pod.Containers[0].Resources.Limits
		if limits["cpu"] == "" || limits["memory"] == "" || limits["ephemeral-storage"] == "" || pod.Volumes[0].EmptyDir["sizeLimit"] == "" || resource.Template.Spec.RevisionHistoryLimit != 1 {
			t.Errorf("the deployment is %+v", resource.Template.Spec)
		}
		return
	}
	t.Error("there is no deployment")
}

func TestEnabled(t *testing.T) {
	templates := make([]infrastructurev1alpha1.Template, 3)
	for i, name := range []string{"application", "postgres", "redis"} {
		templates[i].Name = name
	}
	for _, test := range []struct{ list, want string }{
		{"*", "application postgres redis"},
		{"redis", "redis"},
		{"redis application", "application redis"},
		{"* -postgres", "application redis"},
		{"-postgres", ""},
		{"", ""},
	} {
		var got []string
		for _, enabled := range Enabled(templates, strings.Fields(test.list)) {
			got = append(got, enabled.Name)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%q enables %q, want %q", test.list, got, test.want)
		}
	}
}
