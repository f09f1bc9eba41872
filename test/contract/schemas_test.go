package contract

import "strings"

// schemaVariantRows covers versions, names and conversion of schemas (4.1), in addition to schemaRows.
func schemaVariantRows() []row {
	var rows []row
	create := "POST /clusters/{b}" + schemas + dryRun
	named := func(name, annotation, spec string) string {
		return `{"metadata":{"name":"` + name + `","annotations":{` + annotation + `}},"spec":` + spec + `}`
	}
	const name, version = "v1.widgets.example.io", `"storage":true,"schema":{"type":"object"}`
	withSpec := func(withSpec string) string {
		return named(name, "", strings.TrimSuffix(widgetSpec, "}")+","+withSpec+"}")
	}
	withVersionField := func(withSpec string) string {
		return named(name, "", strings.Replace(widgetSpec, version, version+","+withSpec, 1))
	}
	withGroup := func(group, annotation string) string {
		return named("v1.widgets."+group, annotation, strings.Replace(widgetSpec, "example.io", group, 1))
	}
	withConversion := func(strategy, webhook string) string {
		return withSpec(`"conversion":{"strategy":"` + strategy + `"` + webhook + `}`)
	}
	const webhook = `,"webhook":{"clientConfig":{"url":"https://example.io"},"conversionReviewVersions":["v1"]}`
	for _, group := range strings.Fields("apps batch extensions policy autoscaling") {
		rows = append(rows, row{"4.1", "group " + group, "bob", create, withGroup(group, ""), 201, 201, ""})
	}
	return append(rows, []row{
		{"4.1", "conversion strategy None", "bob", create, withConversion("None", ""), 201, 201, ""},
		{"4.1", "conversion strategy Webhook", "bob", create, withConversion("Webhook", webhook), 201, 201, ""},
		{"4.1", "strategy Webhook without a webhook", "bob", create, withConversion("Webhook", ""), 422, 422, "spec.conversion"},
		{"4.1", "strategy None with a webhook", "bob", create, withConversion("None", webhook), 422, 422, "spec.conversion"},
		{"4.1", "webhook without an address is Forbidden", "bob", create, withConversion("Webhook", `,"webhook":{"clientConfig":{},"conversionReviewVersions":["v1"]}`), 403, 403, "url"},
		{"4.1", "unknown conversion strategy", "bob", create, withConversion("Magic", ""), 422, 422, "strategy"},
		{"4.1", "several versions without conversion", "bob", create, named(name, "", strings.Replace(widgetSpec, `"versions":[`, `"versions":[{"name":"v2","served":true,"storage":false,"schema":{"type":"object"}},`, 1)), 422, 422, "conversion"},
		{"4.1", "nameValidation PathSegmentName", "bob", create, withSpec(`"nameValidation":"PathSegmentName"`), 201, 201, ""},
		{"4.1", "unknown nameValidation", "bob", create, withSpec(`"nameValidation":"Any"`), 422, 422, "nameValidation"},
		{"4.1", "subresources status and scale", "bob", create, withVersionField(`"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}`), 201, 201, ""},
		{"4.1", "scale without a status path", "bob", create, withVersionField(`"subresources":{"scale":{"specReplicasPath":".spec.replicas"}}`), 422, 422, "statusReplicasPath"},
		{"4.1", "printer columns", "bob", create, withVersionField(`"additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":".a"}]`), 201, 201, ""},
		{"4.1", "printer column of an unknown type is Forbidden", "bob", create, withVersionField(`"additionalPrinterColumns":[{"name":"A","type":"text","jsonPath":".a"}]`), 403, 403, "additionalPrinterColumns"},
		{"4.1", "duplicate printer columns", "bob", create, withVersionField(`"additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":".a"},{"name":"A","type":"string","jsonPath":".b"}]`), 422, 422, "Duplicate"},
		{"4.1", "selectable field that is not in the schema is Forbidden", "bob", create, withVersionField(`"selectableFields":[{"jsonPath":".a"}]`), 403, 403, "selectableFields"},
		{"4.1", "deprecation warning without deprecation is Forbidden", "bob", create, withVersionField(`"deprecationWarning":"x"`), 403, 403, "deprecationWarning"},
		{"4.1", "deprecation with a warning", "bob", create, withVersionField(`"deprecated":true,"deprecationWarning":"x"`), 201, 201, ""},
		{"4.1", "invalid CEL rule is Forbidden", "bob", create, named(name, "", strings.Replace(widgetSpec, `{"type":"object"}`, `{"type":"object","x-kubernetes-validations":[{"rule":"self.nope"}]}`, 1)), 403, 403, "x-kubernetes-validations"},
		{"4.1", "approved Kubernetes group", "bob", create, withGroup("x.k8s.io", `"api-approved.kubernetes.io":"https://github.com/kubernetes/kubernetes/pull/1"`), 201, 201, ""},
		{"4.1", "approval that is no URL is Forbidden", "bob", create, withGroup("x.k8s.io", `"api-approved.kubernetes.io":"yes"`), 403, 403, "api-approved.kubernetes.io"},
		{"4.1", "missing list kind is Forbidden", "bob", create, named(name, "", strings.Replace(widgetSpec, `,"listKind":"WidgetList"`, "", 1)), 403, 403, "spec.names.listKind"},
		{"4.1", "missing kind", "bob", create, named(name, "", strings.Replace(widgetSpec, `,"kind":"Widget"`, "", 1)), 422, 422, "spec.names.kind"},
		{"4.1", "create an APIConversion", "bob", "POST /clusters/{b}/apis/apis.kcp.io/v1alpha1/apiconversions" + dryRun, `{"metadata":{"name":"x"},"spec":{"conversions":[{"from":"v1","to":"v2","rules":[{"field":".a","destination":".b"}]}]}}`, 201, 201, ""},
		{"4.1", "APIConversion with an invalid version", "bob", "POST /clusters/{b}/apis/apis.kcp.io/v1alpha1/apiconversions" + dryRun, `{"metadata":{"name":"x"},"spec":{"conversions":[{"from":"one","to":"v2","rules":[]}]}}`, 422, 422, "from"},
	}...)
}
