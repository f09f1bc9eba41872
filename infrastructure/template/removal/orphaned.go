package removal

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
)

// reportOrphaned updates the status of orphaned instances, whose kind an export lists but whose Template does not exist: somebody has removed the
// finalizer of the Template. The objects of the instances stay as they are, and no backend reconciles them until a Template of that name
// exists again.
func (c *Cleaner) reportOrphaned(ctx context.Context, templates []infrastructurev1alpha1.Template) error {
	known := map[string]bool{}
	for i := range templates {
		known[templates[i].Name] = true
	}
	var schemas apisv1alpha1.APIResourceSchemaList
	if err := c.Client.List(ctx, &schemas, client.HasLabels{template.LabelTemplate(c.Group)}); err != nil {
		return fmt.Errorf("listing schemas: %w", err)
	}
	orphaned := map[string]*apisv1alpha1.APIResourceSchema{} // by name
	for i := range schemas.Items {
		if schema := &schemas.Items[i]; !known[schema.Labels[template.LabelTemplate(c.Group)]] {
			orphaned[schema.Name] = schema
		}
	}
	if len(orphaned) == 0 {
		return nil
	}
	exports, err := c.exports(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range exports {
		export := &apisv1alpha2.APIExport{}
		if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, export); err != nil {
			errs = append(errs, fmt.Errorf("reading APIExport %s: %w", name, err))
			continue
		}
		for _, entry := range export.Spec.Resources {
			if schema := orphaned[entry.Schema]; schema != nil {
				errs = append(errs, c.reportNotFound(ctx, name, schema))
			}
		}
	}
	return errors.Join(errs...)
}

// reportNotFound updates the status of orphaned instances of one export.
func (c *Cleaner) reportNotFound(ctx context.Context, export string, schema *apisv1alpha1.APIResourceSchema) error {
	t := &infrastructurev1alpha1.Template{}
	t.Name = schema.Labels[template.LabelTemplate(c.Group)]
	// Somebody may have created the Template since Templates were listed.
	if err := c.Client.Get(ctx, client.ObjectKey{Name: t.Name}, &infrastructurev1alpha1.Template{}); client.IgnoreNotFound(err) != nil || err == nil {
		return err
	}
	c.Log.Info("An export lists a kind whose Template does not exist; create the Template again to have its instances provided or removed", "template", t.Name, "schema", schema.Name)
	names := schema.Spec.Names
	t.Spec.InstanceCRD = infrastructurev1alpha1.InstanceCRD{Group: c.Group, Kind: names.Kind, Resource: names.Plural}
	for i := range schema.Spec.Versions {
		if schema.Spec.Versions[i].Storage {
			t.Spec.InstanceCRD.Version = schema.Spec.Versions[i].Name
		}
	}
	t.Status.Registered.Exports = []string{export}
	if err := c.Instances.ReportTemplateNotFound(ctx, t); err != nil {
		return fmt.Errorf("reporting that template %s does not exist: %w", t.Name, err)
	}
	return nil
}
