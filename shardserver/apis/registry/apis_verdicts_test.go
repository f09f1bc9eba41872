package registry_test

const (
	pod     = `{group: "", resource: pods, verbs: [get]}`
	bindPod = `{group: "", resource: pods, verbs: [get], selector: {matchAll: true}, state: Accepted}`
	ref     = `reference: {export: {path: "root:a", name: e}}`
)

var apiExportVerdicts = []verdict{
	{sentence: "accepts an empty one", object: `{}`},
	{sentence: "accepts a resource without storage", object: `spec: {resources: [{name: widgets, group: example.com, schema: v1.widgets.example.com}]}`},
	{sentence: "accepts resources of both storages", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {crd: {}}}, {name: b, group: example.com, schema: v1.b.example.com, storage: {virtual: {identityHash: x, reference: {kind: K, name: object}}}}]}`},
	{sentence: "refuses both storages at once", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {crd: {}, virtual: {identityHash: x, reference: {kind: K, name: object}}}}]}`, refusedAt: "spec.resources[0].storage"},
	{sentence: "refuses virtual storage without an identity", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {virtual: {reference: {kind: K, name: object}}}}]}`, refusedAt: "spec.resources[0].storage.virtual.identityHash"},
	{sentence: "refuses virtual storage without a kind", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {virtual: {identityHash: x, reference: {name: object}}}}]}`, refusedAt: "spec.resources[0].storage.virtual.reference.kind"},
	{sentence: "refuses a resource without a schema", object: `spec: {resources: [{name: a, group: example.com}]}`, refusedAt: "spec.resources[0].schema"},
	{sentence: "refuses a resource without a name", object: `spec: {resources: [{group: example.com, schema: v1.a.example.com}]}`, refusedAt: "spec.resources[0].name"},
	{sentence: "refuses a resource twice", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com}, {name: a, group: example.com, schema: v2.a.example.com}]}`, refusedAt: "spec.resources[1]"},
	{sentence: "accepts resources of one name in two groups", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com}, {name: a, group: example.org, schema: v2.a.example.org}]}`},
	{sentence: "accepts a local policy", object: `spec: {maximalPermissionPolicy: {local: {}}}`},
	{sentence: "refuses a policy that is none", object: `spec: {maximalPermissionPolicy: {}}`, refusedAt: "spec.maximalPermissionPolicy"},
	{sentence: "accepts an identity", object: `spec: {identity: {secretRef: {name: a, namespace: b}}}`},
	{sentence: "accepts a claim", object: `spec: {permissionClaims: [` + pod + `]}`},
	{sentence: "accepts a claim without a group", object: `spec: {permissionClaims: [{resource: pods, verbs: ["*"]}]}`},
	{sentence: "accepts a claim with a default selector", object: `spec: {permissionClaims: [{resource: pods, verbs: ["*"], defaultSelector: {matchLabels: {a: b}, matchExpressions: [{key: k, operator: Exists}]}}]}`},
	{sentence: "refuses a selector without a key", object: `spec: {permissionClaims: [{resource: pods, verbs: ["*"], defaultSelector: {matchExpressions: [{operator: Exists}]}}]}`, refusedAt: "spec.permissionClaims[0].defaultSelector.matchExpressions[0].key"},
	{sentence: "refuses a claim without verbs", object: `spec: {permissionClaims: [{resource: pods}]}`, refusedAt: "spec.permissionClaims[0].verbs"},
	{sentence: "refuses a claim with an empty list of verbs", object: `spec: {permissionClaims: [{resource: pods, verbs: []}]}`, refusedAt: "spec.permissionClaims[0].verbs"},
	{sentence: "refuses a verb twice", object: `spec: {permissionClaims: [{resource: pods, verbs: [get, get]}]}`, refusedAt: "spec.permissionClaims[0].verbs[1]"},
	{sentence: "refuses a claim without a resource", object: `spec: {permissionClaims: [{verbs: [get]}]}`, refusedAt: "spec.permissionClaims[0].resource"},
	{sentence: "refuses a resource in capitals", object: `spec: {permissionClaims: [{resource: Pods, verbs: [get]}]}`, refusedAt: "spec.permissionClaims[0].resource"},
	{sentence: "refuses a malformed group", object: `spec: {permissionClaims: [{group: "a..b", resource: pods, verbs: [get]}]}`, refusedAt: "spec.permissionClaims[0].group"},
	{sentence: "refuses a claim twice", object: `spec: {permissionClaims: [` + pod + `, ` + pod + `]}`, refusedAt: "spec.permissionClaims[1]"},
	{sentence: "refuses a claim of two identities", object: `spec: {permissionClaims: [{group: ab.cd, resource: cs, identityHash: x, verbs: [get]}, {group: ab.cd, resource: cs, identityHash: z, verbs: [get]}]}`, refusedAt: "spec.permissionClaims[1]"},
	{sentence: "refuses a name in capitals", name: "A", object: `{}`, refusedAt: "metadata.name"},
	{sentence: "accepts a name with dots", name: "a.b", object: `{}`},

	{sentence: "accepts a full status", status: true, object: `status: {identityHash: abc, virtualWorkspaces: [{url: "https://a.test"}], conditions: [{type: A, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`},
	{sentence: "refuses a virtual workspace without a URL", status: true, object: `status: {virtualWorkspaces: [{}]}`, refusedAt: "status.virtualWorkspaces[0].url"},
	{sentence: "refuses a condition without a type", status: true, object: `status: {conditions: [{status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, refusedAt: "status.conditions[0].type"},
}

var apiExportV1alpha1Verdicts = []verdict{
	{sentence: "accepts an empty one", object: `{}`},
	{sentence: "accepts schemas", object: `spec: {latestResourceSchemas: [v1.widgets.example.com, v1.pods.core]}`},
	{sentence: "accepts a claim of all objects", object: `spec: {permissionClaims: [{resource: pods, all: true}]}`},
	{sentence: "accepts a claim of some objects", object: `spec: {permissionClaims: [{resource: pods, resourceSelector: [{name: a}, {namespace: b}]}]}`},
	{sentence: "refuses a claim of no objects", object: `spec: {permissionClaims: [{resource: pods}]}`, refusedAt: "spec.permissionClaims[0]"},
	{sentence: "refuses a claim of an empty list", object: `spec: {permissionClaims: [{resource: pods, resourceSelector: []}]}`, refusedAt: "spec.permissionClaims[0]"},
	{sentence: "refuses a claim of all and of some", object: `spec: {permissionClaims: [{resource: pods, all: true, resourceSelector: [{name: a}]}]}`, refusedAt: "spec.permissionClaims[0]"},
	{sentence: "refuses a selector of nothing", object: `spec: {permissionClaims: [{resource: pods, resourceSelector: [{}]}]}`, refusedAt: "spec.permissionClaims[0].resourceSelector[0]"},
	{sentence: "refuses a malformed name", object: `spec: {permissionClaims: [{resource: pods, resourceSelector: [{name: "A B"}]}]}`, refusedAt: "spec.permissionClaims[0].resourceSelector[0].name"},
	{sentence: "refuses a resource in capitals", object: `spec: {permissionClaims: [{resource: Pods, all: true}]}`, refusedAt: "spec.permissionClaims[0].resource"},
	{sentence: "refuses a claim twice", object: `spec: {permissionClaims: [{resource: pods, all: true}, {resource: pods, all: true}]}`, refusedAt: "spec.permissionClaims[1]"},
	{sentence: "refuses a policy that is none", object: `spec: {maximalPermissionPolicy: {}}`, refusedAt: "spec.maximalPermissionPolicy"},
	{sentence: "refuses a schema twice", object: `spec: {latestResourceSchemas: [v1.a.b.c, v1.a.b.c]}`, refusedAt: "spec.latestResourceSchemas[1]"},
}

var apiBindingVerdicts = []verdict{
	{sentence: "accepts a reference", object: `spec: {` + ref + `}`},
	{sentence: "accepts a reference without a path", object: `spec: {reference: {export: {name: e}}}`},
	{sentence: "accepts a cluster name as path", object: `spec: {reference: {export: {path: 2cynbfy2m0wtjqcs, name: e}}}`},
	{sentence: "accepts a reference to nothing", object: `spec: {reference: {}}`},
	{sentence: "refuses a reference without a name", object: `spec: {reference: {export: {path: root}}}`, refusedAt: "spec.reference.export.name"},
	{sentence: "refuses a malformed path", object: `spec: {reference: {export: {path: "root:", name: e}}}`, refusedAt: "spec.reference.export.path"},
	{sentence: "refuses another name", before: `spec: {` + ref + `}`, object: `spec: {reference: {export: {path: "root:a", name: f}}}`, refusedAt: "spec.reference"},
	{sentence: "refuses another path", before: `spec: {` + ref + `}`, object: `spec: {reference: {export: {path: "root:b", name: e}}}`, refusedAt: "spec.reference"},
	{sentence: "refuses no path any more", before: `spec: {` + ref + `}`, object: `spec: {reference: {export: {name: e}}}`, refusedAt: "spec.reference"},
	{sentence: "accepts a claim", object: `spec: {` + ref + `, permissionClaims: [` + bindPod + `]}`},
	{sentence: "accepts a claim with labels", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, verbs: ["*"], selector: {matchLabels: {a: b}}, state: Rejected}]}`},
	{sentence: "accepts more claims", before: `spec: {` + ref + `}`, object: `spec: {` + ref + `, permissionClaims: [` + bindPod + `]}`},
	{sentence: "refuses an unknown state", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, verbs: ["*"], selector: {matchAll: true}, state: Perhaps}]}`, refusedAt: "spec.permissionClaims[0].state"},
	{sentence: "refuses no state", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, verbs: ["*"], selector: {matchAll: true}}]}`, refusedAt: "spec.permissionClaims[0].state"},
	{sentence: "refuses no verbs", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, selector: {matchAll: true}, state: Accepted}]}`, refusedAt: "spec.permissionClaims[0].verbs"},
	{sentence: "refuses a claim twice", object: `spec: {` + ref + `, permissionClaims: [` + bindPod + `, ` + bindPod + `]}`, refusedAt: "spec.permissionClaims[1]"},
	{sentence: "accepts a claim of two identities", object: `spec: {` + ref + `, permissionClaims: [{group: ab.cd, resource: cs, identityHash: x, verbs: [get], selector: {matchAll: true}, state: Accepted}, {group: ab.cd, resource: cs, identityHash: z, verbs: [get], selector: {matchAll: true}, state: Accepted}]}`},

	{sentence: "accepts a full status", status: true, before: `spec: {` + ref + `}`, object: `status: {phase: Bound, apiExportClusterName: root, boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, UID: u, identityHash: i}, storageVersions: [v1]}], exportPermissionClaims: [` + pod + `], appliedPermissionClaims: [{resource: pods, verbs: ["*"], selector: {matchAll: true}}]}`},
	{sentence: "refuses an unknown phase", status: true, before: `spec: {` + ref + `}`, object: `status: {phase: Unbound}`, refusedAt: "status.phase"},
	{sentence: "refuses a bound resource without a UID", status: true, before: `spec: {` + ref + `}`, object: `status: {boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, identityHash: i}}]}`, refusedAt: "status.boundResources[0].schema.UID"},
	{sentence: "refuses a bound resource without an identity", status: true, before: `spec: {` + ref + `}`, object: `status: {boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, UID: i}}]}`, refusedAt: "status.boundResources[0].schema.identityHash"},
	{sentence: "refuses a bound resource twice", status: true, before: `spec: {` + ref + `}`, object: `status: {boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, UID: u, identityHash: i}}, {group: ab.cd, resource: cs, schema: {name: v2.cs.a.b, UID: u, identityHash: i}}]}`, refusedAt: "status.boundResources[1]"},
	{sentence: "refuses a storage version twice", status: true, before: `spec: {` + ref + `}`, object: `status: {boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, UID: u, identityHash: i}, storageVersions: [v1, v1]}]}`, refusedAt: "status.boundResources[0].storageVersions[1]"},
}

var apiBindingV1alpha1Verdicts = []verdict{
	{sentence: "accepts a reference", object: `spec: {` + ref + `}`},
	{sentence: "refuses a reference to nothing", object: `spec: {reference: {}}`, refusedAt: "spec.reference"},
	{sentence: "refuses another name", before: `spec: {` + ref + `}`, object: `spec: {reference: {export: {path: "root:a", name: f}}}`, refusedAt: "spec.reference"},
	{sentence: "accepts a claim of all objects", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, all: true, state: Accepted}]}`},
	{sentence: "accepts a claim of some objects", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, resourceSelector: [{name: a, namespace: b}], state: Accepted}]}`},
	{sentence: "refuses a claim of no objects", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, state: Accepted}]}`, refusedAt: "spec.permissionClaims[0]"},
	{sentence: "refuses a claim of all and of some", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, all: true, resourceSelector: [{name: a}], state: Accepted}]}`, refusedAt: "spec.permissionClaims[0]"},
	{sentence: "refuses a selector of nothing", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, resourceSelector: [{}], state: Accepted}]}`, refusedAt: "spec.permissionClaims[0].resourceSelector[0]"},
	{sentence: "refuses no state", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, all: true}]}`, refusedAt: "spec.permissionClaims[0].state"},
}

const version = `{name: v1, served: true, storage: true, schema: {type: object}}`

func schemaSpec(more string) string {
	return `spec: {group: example.com, scope: Namespaced, names: {plural: widgets, kind: Widget}` + more + `}`
}

var apiResourceSchemaVerdicts = []verdict{
	{sentence: "accepts one version", object: schemaSpec(`, versions: [` + version + `]`)},
	{sentence: "accepts a version that does not say whether it is served", object: schemaSpec(`, versions: [{name: v1, storage: true, schema: {type: object}}]`)},
	{sentence: "accepts the names that any path may have", object: schemaSpec(`, versions: [` + version + `], nameValidation: PathSegmentName`)},
	{sentence: "refuses another validation of names", object: schemaSpec(`, versions: [` + version + `], nameValidation: None`), refusedAt: "spec.nameValidation"},
	{sentence: "refuses no version", object: schemaSpec(``), refusedAt: "spec.versions"},
	{sentence: "refuses an empty list of versions", object: schemaSpec(`, versions: []`), refusedAt: "spec.versions"},
	{sentence: "refuses a version twice", object: schemaSpec(`, versions: [` + version + `, ` + version + `], conversion: {strategy: None}`), refusedAt: "spec.versions[1]"},
	{sentence: "refuses a malformed version", object: schemaSpec(`, versions: [{name: one, served: true, storage: true, schema: {type: object}}]`), refusedAt: "spec.versions[0].name"},
	{sentence: "refuses a version without a schema", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true}]`), refusedAt: "spec.versions[0].schema"},
	{sentence: "refuses a schema that is no object", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true, schema: x}]`), refusedAt: "spec.versions[0].schema"},
	{sentence: "refuses several versions without a conversion", object: schemaSpec(`, versions: [` + version + `, {name: v2, served: true, storage: false, schema: {type: object}}]`), refusedAt: "spec"},
	{sentence: "accepts several versions with a conversion", object: schemaSpec(`, versions: [` + version + `, {name: v2, served: true, storage: false, schema: {type: object}}], conversion: {strategy: None}`)},
	{sentence: "accepts a webhook", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://a.test/convert"}}}`)},
	{sentence: "refuses a webhook that is not there", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: Webhook}`), refusedAt: "spec.conversion"},
	{sentence: "refuses a webhook that is not asked", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: None, webhook: {conversionReviewVersions: [v1]}}`), refusedAt: "spec.conversion"},
	{sentence: "refuses an unknown strategy", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: Magic}`), refusedAt: "spec.conversion.strategy"},
	{sentence: "refuses a webhook without review versions", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: Webhook, webhook: {clientConfig: {url: "https://a.test"}}}`), refusedAt: "spec.conversion.webhook.conversionReviewVersions"},
	{sentence: "refuses an unknown scope", object: `spec: {group: example.com, scope: World, names: {plural: widgets, kind: Widget}, versions: [` + version + `]}`, refusedAt: "spec.scope"},
	{sentence: "refuses no scope", object: `spec: {group: example.com, names: {plural: widgets, kind: Widget}, versions: [` + version + `]}`, refusedAt: "spec.scope"},
	{sentence: "refuses no kind", object: `spec: {group: example.com, scope: Cluster, names: {plural: widgets}, versions: [` + version + `]}`, refusedAt: "spec.names.kind"},
	{sentence: "refuses no plural", object: `spec: {group: example.com, scope: Cluster, names: {kind: Widget}, versions: [` + version + `]}`, refusedAt: "spec.names.plural"},
	{sentence: "refuses a column without a path", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true, schema: {type: object}, additionalPrinterColumns: [{name: A, type: string}]}]`), refusedAt: "spec.versions[0].additionalPrinterColumns[0].jsonPath"},
	{sentence: "refuses a scale without a path", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true, schema: {type: object}, subresources: {scale: {specReplicasPath: .spec.x}}}]`), refusedAt: "spec.versions[0].subresources.scale.statusReplicasPath"},
	{sentence: "refuses a selectable field without a path", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true, schema: {type: object}, selectableFields: [{}]}]`), refusedAt: "spec.versions[0].selectableFields[0].jsonPath"},
}

var apiExportEndpointSliceVerdicts = []verdict{
	{sentence: "accepts an export and a partition", object: `spec: {export: {path: root, name: e}, partition: p}`},
	{sentence: "accepts another partition", before: `spec: {export: {path: root, name: e}, partition: p}`, object: `spec: {export: {path: root, name: e}, partition: q}`},
	{sentence: "refuses another export", before: `spec: {export: {path: root, name: e}}`, object: `spec: {export: {path: root, name: f}}`, refusedAt: "spec.export"},
	{sentence: "refuses no name", object: `spec: {export: {path: root}}`, refusedAt: "spec.export.name"},
	{sentence: "refuses a malformed path", object: `spec: {export: {path: "a:", name: e}}`, refusedAt: "spec.export.path"},
	{sentence: "accepts endpoints", status: true, before: `spec: {export: {name: e}}`, object: `status: {shardSelector: "a=b", endpoints: [{url: "https://a.test"}, {url: "https://b.test", shards: {matchAll: true}}, {url: "https://c.test", shards: {selector: {matchLabels: {a: b}}}}]}`},
	{sentence: "refuses an endpoint without a URL", status: true, before: `spec: {export: {name: e}}`, object: `status: {endpoints: [{}]}`, refusedAt: "status.endpoints[0].url"},
	{sentence: "refuses an endpoint twice", status: true, before: `spec: {export: {name: e}}`, object: `status: {endpoints: [{url: a}, {url: a}]}`, refusedAt: "status.endpoints[1]"},
	{sentence: "refuses all shards and some", status: true, before: `spec: {export: {name: e}}`, object: `status: {endpoints: [{url: a, shards: {matchAll: true, selector: {}}}]}`, refusedAt: "status.endpoints[0].shards"},
}

var apiConversionVerdicts = []verdict{
	{sentence: "accepts a conversion", object: `spec: {conversions: [{from: v1, to: v2, rules: [{field: .a, destination: .b, transformation: self}], preserve: [.c]}]}`},
	{sentence: "refuses no conversions", object: `spec: {}`, refusedAt: "spec.conversions"},
	{sentence: "refuses no rules", object: `spec: {conversions: [{from: v1, to: v2}]}`, refusedAt: "spec.conversions[0].rules"},
	{sentence: "refuses a malformed version", object: `spec: {conversions: [{from: one, to: v2, rules: []}]}`, refusedAt: "spec.conversions[0].from"},
	{sentence: "refuses a conversion twice", object: `spec: {conversions: [{from: v1, to: v2, rules: []}, {from: v1, to: v2, rules: []}]}`, refusedAt: "spec.conversions[1]"},
	{sentence: "refuses a destination twice", object: `spec: {conversions: [{from: v1, to: v2, rules: [{field: a, destination: b}, {field: c, destination: b}]}]}`, refusedAt: "spec.conversions[0].rules[1]"},
	{sentence: "refuses a rule without a field", object: `spec: {conversions: [{from: v1, to: v2, rules: [{destination: b}]}]}`, refusedAt: "spec.conversions[0].rules[0].field"},
}
