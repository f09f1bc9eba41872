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

// TestInstancesAreBounded checks that instances have limits on the resources of a node: an application runs any image, and tenants control the
// load of the other instances.
func TestInstancesAreBounded(t *testing.T) {
	templates, err := Shipped(infrastructurev1alpha1.GroupName)
	if err != nil {
		t.Fatal(err)
	}
	for i := range templates {
		var config struct{ Resources []resource }
		if err := json.Unmarshal(templates[i].Spec.BackendConfig.Raw, &config); err != nil {
			t.Fatal(err)
		}
		containers := 0
		for _, r := range config.Resources {
			pod := r.Template.Spec.Template.Spec
			containers += len(pod.Containers)
			for _, of := range pod.Containers {
				for _, name := range []string{"cpu", "memory", "ephemeral-storage"} {
					if of.Resources.Limits[name] == "" || of.Resources.Requests[name] == "" {
						t.Errorf("%s: a container has the resources %+v", templates[i].Name, of.Resources)
					}
				}
			}
			for _, volume := range pod.Volumes {
				if volume.EmptyDir != nil && volume.EmptyDir["sizeLimit"] == "" {
					t.Errorf("%s: a volume is %v", templates[i].Name, volume.EmptyDir)
				}
			}
			if r.ID == "deployment" && r.Template.Spec.RevisionHistoryLimit != 1 {
				t.Errorf("%s: %d previous ReplicaSets stay", templates[i].Name, r.Template.Spec.RevisionHistoryLimit)
			}
		}
		if containers == 0 {
			t.Errorf("%s has no containers", templates[i].Name)
		}
	}
}

// resource is a resource of a shipped Template.
type resource struct {
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
