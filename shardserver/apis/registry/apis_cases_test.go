package registry_test

const (
	pod     = `{group: "", resource: pods, verbs: [get]}`
	bindPod = `{group: "", resource: pods, verbs: [get], selector: {matchAll: true}, state: Accepted}`
	ref     = `reference: {export: {path: "root:a", name: e}}`
)

var apiExportCases = []testCase{
	{description: "accepts an empty spec", object: `{}`},
	{description: "accepts a resource without storage", object: `spec: {resources: [{name: widgets, group: example.com, schema: v1.widgets.example.com}]}`},
	{description: "accepts resources of both storages", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {crd: {}}}, {name: b, group: example.com, schema: v1.b.example.com, storage: {virtual: {identityHash: x, reference: {kind: K, name: object}}}}]}`},
	{description: "rejects both storages at once", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {crd: {}, virtual: {identityHash: x, reference: {kind: K, name: object}}}}]}`, invalidField: "spec.resources[0].storage"},
	{description: "accepts virtual storage without an identity", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {virtual: {reference: {kind: K, name: object}}}}]}`},
	{description: "rejects virtual storage without a kind", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {virtual: {identityHash: x, reference: {name: object}}}}]}`, invalidField: "spec.resources[0].storage.virtual.reference.kind"},
	{description: "rejects a resource without a schema", object: `spec: {resources: [{name: a, group: example.com}]}`, invalidField: "spec.resources[0].schema"},
	{description: "rejects a resource without a name", object: `spec: {resources: [{group: example.com, schema: v1.a.example.com}]}`, invalidField: "spec.resources[0].name"},
	{description: "rejects a resource twice", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com}, {name: a, group: example.com, schema: v2.a.example.com}]}`, invalidField: "spec.resources[1]"},
	{description: "accepts resources of one name in two groups", object: `spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com}, {name: a, group: example.org, schema: v2.a.example.org}]}`},
	{description: "accepts a local policy", object: `spec: {maximalPermissionPolicy: {local: {}}}`},
	{description: "rejects an invalid policy", object: `spec: {maximalPermissionPolicy: {}}`, invalidField: "spec.maximalPermissionPolicy"},
	{description: "accepts an identity", object: `spec: {identity: {secretRef: {name: a, namespace: b}}}`},
	{description: "accepts a claim", object: `spec: {permissionClaims: [` + pod + `]}`},
	{description: "accepts a claim without a group", object: `spec: {permissionClaims: [{resource: pods, verbs: ["*"]}]}`},
	{description: "accepts a claim with a default selector", object: `spec: {permissionClaims: [{resource: pods, verbs: ["*"], defaultSelector: {matchLabels: {a: b}, matchExpressions: [{key: k, operator: Exists}]}}]}`},
	{description: "rejects a selector without a key", object: `spec: {permissionClaims: [{resource: pods, verbs: ["*"], defaultSelector: {matchExpressions: [{operator: Exists}]}}]}`, invalidField: "spec.permissionClaims[0].defaultSelector.matchExpressions[0].key"},
	{description: "rejects a claim without verbs", object: `spec: {permissionClaims: [{resource: pods}]}`, invalidField: "spec.permissionClaims[0].verbs"},
	{description: "rejects a claim with an empty list of verbs", object: `spec: {permissionClaims: [{resource: pods, verbs: []}]}`, invalidField: "spec.permissionClaims[0].verbs"},
	{description: "rejects a verb twice", object: `spec: {permissionClaims: [{resource: pods, verbs: [get, get]}]}`, invalidField: "spec.permissionClaims[0].verbs[1]"},
	{description: "rejects a claim without a resource", object: `spec: {permissionClaims: [{verbs: [get]}]}`, invalidField: "spec.permissionClaims[0].resource"},
	{description: "rejects a resource in upper case", object: `spec: {permissionClaims: [{resource: Pods, verbs: [get]}]}`, invalidField: "spec.permissionClaims[0].resource"},
	{description: "rejects a malformed group", object: `spec: {permissionClaims: [{group: "a..b", resource: pods, verbs: [get]}]}`, invalidField: "spec.permissionClaims[0].group"},
	{description: "rejects a claim twice", object: `spec: {permissionClaims: [` + pod + `, ` + pod + `]}`, invalidField: "spec.permissionClaims[1]"},
	{description: "accepts a claim of a subresource", object: `spec: {permissionClaims: [{resource: serviceaccounts/token, verbs: [create]}]}`},
	{description: "rejects a claim of a subresource of a subresource", object: `spec: {permissionClaims: [{resource: serviceaccounts/token/other, verbs: [create]}]}`, invalidField: "spec.permissionClaims[0].resource"},
	{description: "rejects a claim of two identities", object: `spec: {permissionClaims: [{group: ab.cd, resource: cs, identityHash: x, verbs: [get]}, {group: ab.cd, resource: cs, identityHash: z, verbs: [get]}]}`, invalidField: "spec.permissionClaims[1]"},
	{description: "rejects a name in upper case", name: "A", object: `{}`, invalidField: "metadata.name"},
	{description: "accepts a name with dots", name: "a.b", object: `{}`},

	{description: "accepts a full status", status: true, object: `status: {identityHash: abc, virtualWorkspaces: [{url: "https://a.test"}], conditions: [{type: A, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`},
	{description: "rejects a virtual workspace without a URL", status: true, object: `status: {virtualWorkspaces: [{}]}`, invalidField: "status.virtualWorkspaces[0].url"},
	{description: "rejects a condition without a type", status: true, object: `status: {conditions: [{status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, invalidField: "status.conditions[0].type"},
}

var apiExportV1alpha1Cases = []testCase{
	{description: "accepts an empty spec", object: `{}`},
	{description: "accepts schemas", object: `spec: {latestResourceSchemas: [v1.widgets.example.com, v1.pods.core]}`},
	{description: "accepts a claim of all objects", object: `spec: {permissionClaims: [{resource: pods, all: true}]}`},
	{description: "accepts a claim of some objects", object: `spec: {permissionClaims: [{resource: pods, resourceSelector: [{name: a}, {namespace: b}]}]}`},
	{description: "rejects a claim of no objects", object: `spec: {permissionClaims: [{resource: pods}]}`, invalidField: "spec.permissionClaims[0]"},
	{description: "rejects a claim of an empty list", object: `spec: {permissionClaims: [{resource: pods, resourceSelector: []}]}`, invalidField: "spec.permissionClaims[0]"},
	{description: "rejects a claim of all and of some", object: `spec: {permissionClaims: [{resource: pods, all: true, resourceSelector: [{name: a}]}]}`, invalidField: "spec.permissionClaims[0]"},
	{description: "rejects an empty selector", object: `spec: {permissionClaims: [{resource: pods, resourceSelector: [{}]}]}`, invalidField: "spec.permissionClaims[0].resourceSelector[0]"},
	{description: "rejects a malformed name", object: `spec: {permissionClaims: [{resource: pods, resourceSelector: [{name: "A B"}]}]}`, invalidField: "spec.permissionClaims[0].resourceSelector[0].name"},
	{description: "rejects a resource in upper case", object: `spec: {permissionClaims: [{resource: Pods, all: true}]}`, invalidField: "spec.permissionClaims[0].resource"},
	{description: "rejects a claim twice", object: `spec: {permissionClaims: [{resource: pods, all: true}, {resource: pods, all: true}]}`, invalidField: "spec.permissionClaims[1]"},
	{description: "rejects an invalid policy", object: `spec: {maximalPermissionPolicy: {}}`, invalidField: "spec.maximalPermissionPolicy"},
	{description: "rejects a schema twice", object: `spec: {latestResourceSchemas: [v1.a.b.c, v1.a.b.c]}`, invalidField: "spec.latestResourceSchemas[1]"},
}

var apiBindingCases = []testCase{
	{description: "accepts a reference", object: `spec: {` + ref + `}`},
	{description: "accepts a reference without a path", object: `spec: {reference: {export: {name: e}}}`},
	{description: "accepts a cluster name as path", object: `spec: {reference: {export: {path: 2cynbfy2m0wtjqcs, name: e}}}`},
	{description: "accepts a reference to nothing", object: `spec: {reference: {}}`},
	{description: "rejects a reference without a name", object: `spec: {reference: {export: {path: root}}}`, invalidField: "spec.reference.export.name"},
	{description: "rejects a malformed path", object: `spec: {reference: {export: {path: "root:", name: e}}}`, invalidField: "spec.reference.export.path"},
	{description: "rejects another name", existing: `spec: {` + ref + `}`, object: `spec: {reference: {export: {path: "root:a", name: f}}}`, invalidField: "spec.reference"},
	{description: "rejects another path", existing: `spec: {` + ref + `}`, object: `spec: {reference: {export: {path: "root:b", name: e}}}`, invalidField: "spec.reference"},
	{description: "rejects the removal of the path", existing: `spec: {` + ref + `}`, object: `spec: {reference: {export: {name: e}}}`, invalidField: "spec.reference"},
	{description: "accepts a claim", object: `spec: {` + ref + `, permissionClaims: [` + bindPod + `]}`},
	{description: "accepts a claim with labels", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, verbs: ["*"], selector: {matchLabels: {a: b}}, state: Rejected}]}`},
	{description: "accepts more claims", existing: `spec: {` + ref + `}`, object: `spec: {` + ref + `, permissionClaims: [` + bindPod + `]}`},
	{description: "rejects an unknown state", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, verbs: ["*"], selector: {matchAll: true}, state: Perhaps}]}`, invalidField: "spec.permissionClaims[0].state"},
	{description: "rejects no state", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, verbs: ["*"], selector: {matchAll: true}}]}`, invalidField: "spec.permissionClaims[0].state"},
	{description: "rejects no verbs", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, selector: {matchAll: true}, state: Accepted}]}`, invalidField: "spec.permissionClaims[0].verbs"},
	{description: "rejects a claim twice", object: `spec: {` + ref + `, permissionClaims: [` + bindPod + `, ` + bindPod + `]}`, invalidField: "spec.permissionClaims[1]"},
	{description: "accepts a deletion policy", object: `spec: {` + ref + `, deletionPolicy: WaitForSuccessor}`},
	{description: "rejects an unknown deletion policy", object: `spec: {` + ref + `, deletionPolicy: Orphan}`, invalidField: "spec.deletionPolicy"},
	{description: "accepts a claim of two identities", object: `spec: {` + ref + `, permissionClaims: [{group: ab.cd, resource: cs, identityHash: x, verbs: [get], selector: {matchAll: true}, state: Accepted}, {group: ab.cd, resource: cs, identityHash: z, verbs: [get], selector: {matchAll: true}, state: Accepted}]}`},

	{description: "accepts a full status", status: true, existing: `spec: {` + ref + `}`, object: `status: {phase: Bound, apiExportClusterName: root, boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, UID: u, identityHash: i}, storageVersions: [v1]}], exportPermissionClaims: [` + pod + `], appliedPermissionClaims: [{resource: pods, verbs: ["*"], selector: {matchAll: true}}]}`},
	{description: "rejects an unknown phase", status: true, existing: `spec: {` + ref + `}`, object: `status: {phase: Unbound}`, invalidField: "status.phase"},
	{description: "rejects a bound resource without a UID", status: true, existing: `spec: {` + ref + `}`, object: `status: {boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, identityHash: i}}]}`, invalidField: "status.boundResources[0].schema.UID"},
	{description: "rejects a bound resource without an identity", status: true, existing: `spec: {` + ref + `}`, object: `status: {boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, UID: i}}]}`, invalidField: "status.boundResources[0].schema.identityHash"},
	{description: "rejects a bound resource twice", status: true, existing: `spec: {` + ref + `}`, object: `status: {boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, UID: u, identityHash: i}}, {group: ab.cd, resource: cs, schema: {name: v2.cs.a.b, UID: u, identityHash: i}}]}`, invalidField: "status.boundResources[1]"},
	{description: "rejects a storage version twice", status: true, existing: `spec: {` + ref + `}`, object: `status: {boundResources: [{group: ab.cd, resource: cs, schema: {name: v1.cs.a.b, UID: u, identityHash: i}, storageVersions: [v1, v1]}]}`, invalidField: "status.boundResources[0].storageVersions[1]"},
}

var apiBindingV1alpha1Cases = []testCase{
	{description: "accepts a reference", object: `spec: {` + ref + `}`},
	{description: "rejects an empty reference", object: `spec: {reference: {}}`, invalidField: "spec.reference"},
	{description: "rejects another name", existing: `spec: {` + ref + `}`, object: `spec: {reference: {export: {path: "root:a", name: f}}}`, invalidField: "spec.reference"},
	{description: "accepts a claim of all objects", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, all: true, state: Accepted}]}`},
	{description: "accepts a claim of some objects", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, resourceSelector: [{name: a, namespace: b}], state: Accepted}]}`},
	{description: "rejects a claim of no objects", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, state: Accepted}]}`, invalidField: "spec.permissionClaims[0]"},
	{description: "rejects a claim of all and of some", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, all: true, resourceSelector: [{name: a}], state: Accepted}]}`, invalidField: "spec.permissionClaims[0]"},
	{description: "rejects an empty selector", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, resourceSelector: [{}], state: Accepted}]}`, invalidField: "spec.permissionClaims[0].resourceSelector[0]"},
	{description: "rejects no state", object: `spec: {` + ref + `, permissionClaims: [{resource: pods, all: true}]}`, invalidField: "spec.permissionClaims[0].state"},
}

const version = `{name: v1, served: true, storage: true, schema: {type: object}}`

func schemaSpec(more string) string {
	return `spec: {group: example.com, scope: Namespaced, names: {plural: widgets, kind: Widget}` + more + `}`
}

var apiResourceSchemaCases = []testCase{
	{description: "accepts one version", object: schemaSpec(`, versions: [` + version + `]`)},
	{description: "accepts a version without the field served", object: schemaSpec(`, versions: [{name: v1, storage: true, schema: {type: object}}]`)},
	{description: "accepts names that are path segments", object: schemaSpec(`, versions: [` + version + `], nameValidation: PathSegmentName`)},
	{description: "rejects another validation of names", object: schemaSpec(`, versions: [` + version + `], nameValidation: None`), invalidField: "spec.nameValidation"},
	{description: "rejects no version", object: schemaSpec(``), invalidField: "spec.versions"},
	{description: "rejects an empty list of versions", object: schemaSpec(`, versions: []`), invalidField: "spec.versions"},
	{description: "rejects a version twice", object: schemaSpec(`, versions: [` + version + `, ` + version + `], conversion: {strategy: None}`), invalidField: "spec.versions[1]"},
	{description: "rejects a malformed version", object: schemaSpec(`, versions: [{name: one, served: true, storage: true, schema: {type: object}}]`), invalidField: "spec.versions[0].name"},
	{description: "rejects a version without a schema", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true}]`), invalidField: "spec.versions[0].schema"},
	{description: "rejects a schema that is no object", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true, schema: x}]`), invalidField: "spec.versions[0].schema"},
	{description: "rejects several versions without a conversion", object: schemaSpec(`, versions: [` + version + `, {name: v2, served: true, storage: false, schema: {type: object}}]`), invalidField: "spec"},
	{description: "accepts several versions with a conversion", object: schemaSpec(`, versions: [` + version + `, {name: v2, served: true, storage: false, schema: {type: object}}], conversion: {strategy: None}`)},
	{description: "accepts a webhook", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://a.test/convert"}}}`)},
	{description: "rejects a missing webhook", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: Webhook}`), invalidField: "spec.conversion"},
	{description: "rejects a webhook without the strategy Webhook", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: None, webhook: {conversionReviewVersions: [v1]}}`), invalidField: "spec.conversion"},
	{description: "rejects an unknown strategy", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: Magic}`), invalidField: "spec.conversion.strategy"},
	{description: "rejects a webhook without review versions", object: schemaSpec(`, versions: [` + version + `], conversion: {strategy: Webhook, webhook: {clientConfig: {url: "https://a.test"}}}`), invalidField: "spec.conversion.webhook.conversionReviewVersions"},
	{description: "rejects an unknown scope", object: `spec: {group: example.com, scope: World, names: {plural: widgets, kind: Widget}, versions: [` + version + `]}`, invalidField: "spec.scope"},
	{description: "rejects no scope", object: `spec: {group: example.com, names: {plural: widgets, kind: Widget}, versions: [` + version + `]}`, invalidField: "spec.scope"},
	{description: "rejects no kind", object: `spec: {group: example.com, scope: Cluster, names: {plural: widgets}, versions: [` + version + `]}`, invalidField: "spec.names.kind"},
	{description: "rejects no plural", object: `spec: {group: example.com, scope: Cluster, names: {kind: Widget}, versions: [` + version + `]}`, invalidField: "spec.names.plural"},
	{description: "rejects a column without a path", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true, schema: {type: object}, additionalPrinterColumns: [{name: A, type: string}]}]`), invalidField: "spec.versions[0].additionalPrinterColumns[0].jsonPath"},
	{description: "rejects a scale without a path", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true, schema: {type: object}, subresources: {scale: {specReplicasPath: .spec.x}}}]`), invalidField: "spec.versions[0].subresources.scale.statusReplicasPath"},
	{description: "rejects a selectable field without a path", object: schemaSpec(`, versions: [{name: v1, served: true, storage: true, schema: {type: object}, selectableFields: [{}]}]`), invalidField: "spec.versions[0].selectableFields[0].jsonPath"},
}

var apiExportEndpointSliceCases = []testCase{
	{description: "accepts an export and a partition", object: `spec: {export: {path: root, name: e}, partition: p}`},
	{description: "accepts another partition", existing: `spec: {export: {path: root, name: e}, partition: p}`, object: `spec: {export: {path: root, name: e}, partition: q}`},
	{description: "rejects another export", existing: `spec: {export: {path: root, name: e}}`, object: `spec: {export: {path: root, name: f}}`, invalidField: "spec.export"},
	{description: "rejects no name", object: `spec: {export: {path: root}}`, invalidField: "spec.export.name"},
	{description: "rejects a malformed path", object: `spec: {export: {path: "a:", name: e}}`, invalidField: "spec.export.path"},
	{description: "accepts endpoints", status: true, existing: `spec: {export: {name: e}}`, object: `status: {shardSelector: "a=b", endpoints: [{url: "https://a.test"}, {url: "https://b.test", shards: {matchAll: true}}, {url: "https://c.test", shards: {selector: {matchLabels: {a: b}}}}]}`},
	{description: "rejects an endpoint without a URL", status: true, existing: `spec: {export: {name: e}}`, object: `status: {endpoints: [{}]}`, invalidField: "status.endpoints[0].url"},
	{description: "rejects an endpoint twice", status: true, existing: `spec: {export: {name: e}}`, object: `status: {endpoints: [{url: a}, {url: a}]}`, invalidField: "status.endpoints[1]"},
	{description: "rejects all shards and a selector", status: true, existing: `spec: {export: {name: e}}`, object: `status: {endpoints: [{url: a, shards: {matchAll: true, selector: {}}}]}`, invalidField: "status.endpoints[0].shards"},
}

var apiConversionCases = []testCase{
	{description: "accepts a conversion", object: `spec: {conversions: [{from: v1, to: v2, rules: [{field: .a, destination: .b, transformation: self}], preserve: [.c]}]}`},
	{description: "rejects no conversions", object: `spec: {}`, invalidField: "spec.conversions"},
	{description: "rejects no rules", object: `spec: {conversions: [{from: v1, to: v2}]}`, invalidField: "spec.conversions[0].rules"},
	{description: "rejects a malformed version", object: `spec: {conversions: [{from: one, to: v2, rules: []}]}`, invalidField: "spec.conversions[0].from"},
	{description: "rejects a conversion twice", object: `spec: {conversions: [{from: v1, to: v2, rules: []}, {from: v1, to: v2, rules: []}]}`, invalidField: "spec.conversions[1]"},
	{description: "rejects a destination twice", object: `spec: {conversions: [{from: v1, to: v2, rules: [{field: a, destination: b}, {field: c, destination: b}]}]}`, invalidField: "spec.conversions[0].rules[1]"},
	{description: "rejects a rule without a field", object: `spec: {conversions: [{from: v1, to: v2, rules: [{destination: b}]}]}`, invalidField: "spec.conversions[0].rules[0].field"},
}
