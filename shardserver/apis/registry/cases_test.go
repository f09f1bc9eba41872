package registry_test

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	createOptions = metav1.CreateOptions{}
	updateOptions = metav1.UpdateOptions{}
)

// testCase is one write and its expected result.
type testCase struct {
	description string
	// name of the object; the default is that of the group of cases.
	name string
	// existing is the object before an update, as YAML; empty: the case is a creation (or, for a status, starts with an
	// object without a spec).
	existing string
	// object is the object in the request, as YAML, without name and kind.
	object string
	// status selects the status subresource.
	status bool
	// invalidField is the field of the expected error; empty: the write is accepted.
	invalidField string
}

// isInvalid reports whether the error is a 422 with the field.
func isInvalid(err error, fieldPath string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == fieldPath {
			return true
		}
	}
	return false
}

const owner = `{apiVersion: tenancy.kcp.io/v1alpha1, resource: workspaces, name: a, cluster: root, uid: u}`

var logicalClusterCases = []testCase{
	{description: "accepts an empty spec", object: `{}`},
	{description: "accepts all fields", object: `spec: {directlyDeletable: true, owner: ` + owner + `, createdBy: {username: a, groups: [b], extra: {c: [d]}}, initializers: ["root:universal", "system:apibindings"], terminators: ["root:universal"]}`},
	{description: "rejects another name", name: "other", object: `{}`, invalidField: "metadata.name"},
	{description: "rejects an initializer of one segment", object: `spec: {initializers: [universal]}`, invalidField: "spec.initializers[0]"},
	{description: "rejects an initializer whose last segment has one letter", object: `spec: {initializers: ["root:u"]}`, invalidField: "spec.initializers[0]"},
	{description: "rejects an empty initializer", object: `spec: {initializers: ["root:universal", ""]}`, invalidField: "spec.initializers[1]"},
	{description: "accepts an initializer that ends like one of the system", object: `spec: {initializers: ["!system:x"]}`},
	{description: "rejects a malformed terminator", object: `spec: {terminators: ["Root:Universal"]}`, invalidField: "spec.terminators[0]"},
	{description: "rejects an owner without a cluster", object: `spec: {owner: {apiVersion: v1, resource: x, name: a, uid: u}}`, invalidField: "spec.owner.cluster"},
	{description: "rejects an owner without a name", object: `spec: {owner: {apiVersion: v1, resource: x, cluster: a, uid: u}}`, invalidField: "spec.owner.name"},
	{description: "rejects an owner without a resource", object: `spec: {owner: {apiVersion: v1, name: a, cluster: a, uid: u}}`, invalidField: "spec.owner.resource"},
	{description: "rejects an owner without an API version", object: `spec: {owner: {resource: x, name: a, cluster: a, uid: u}}`, invalidField: "spec.owner.apiVersion"},
	{description: "rejects an owner without a UID", object: `spec: {owner: {apiVersion: v1, resource: x, name: a, cluster: a}}`, invalidField: "spec.owner.uid"},
	{description: "rejects an owner with two slashes in its API version", object: `spec: {owner: {apiVersion: a/b/c, resource: x, name: a, cluster: a, uid: u}}`, invalidField: "spec.owner.apiVersion"},
	{description: "rejects a change to something invalid", existing: `spec: {}`, object: `spec: {initializers: [x]}`, invalidField: "spec.initializers[0]"},
	{description: "ignores an invalid status on the main resource", existing: `spec: {}`, object: `{spec: {directlyDeletable: true}, status: {phase: Nonsense}}`},

	{description: "accepts a full status", status: true, object: `status: {URL: "https://example.test", phase: Ready, initializers: ["root:universal"], terminators: ["root:universal"], conditions: [{type: A, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`},
	{description: "rejects an unknown phase", status: true, object: `status: {phase: Nonsense}`, invalidField: "status.phase"},
	{description: "rejects a malformed initializer in the status", status: true, object: `status: {initializers: [x]}`, invalidField: "status.initializers[0]"},
	{description: "rejects a malformed terminator in the status", status: true, object: `status: {terminators: [x]}`, invalidField: "status.terminators[0]"},
	{description: "rejects a condition without a type", status: true, object: `status: {conditions: [{status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, invalidField: "status.conditions[0].type"},
	{description: "rejects a condition without a status", status: true, object: `status: {conditions: [{type: A, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, invalidField: "status.conditions[0].status"},
	{description: "rejects a condition without a time", status: true, object: `status: {conditions: [{type: A, status: "True"}]}`, invalidField: "status.conditions[0].lastTransitionTime"},
}

var shardCases = []testCase{
	{description: "accepts a base URL alone", object: `spec: {baseURL: "https://a.test:6443"}`},
	{description: "accepts three URLs", object: `spec: {baseURL: "https://a.test", externalURL: "https://b.test", virtualWorkspaceURL: "https://c.test/x"}`},
	{description: "accepts a name with dots", name: "a.b", object: `spec: {baseURL: "https://a.test"}`},
	{description: "rejects a name in upper case", name: "A", object: `spec: {baseURL: "https://a.test"}`, invalidField: "metadata.name"},
	{description: "rejects no base URL", object: `spec: {}`, invalidField: "spec.baseURL"},
	{description: "rejects an invalid base URL", object: `spec: {baseURL: "a b"}`, invalidField: "spec.baseURL"},
	{description: "rejects an invalid external URL", object: `spec: {baseURL: "https://a.test", externalURL: nonsense}`, invalidField: "spec.externalURL"},
	{description: "rejects an invalid virtual workspace URL", object: `spec: {baseURL: "https://a.test", virtualWorkspaceURL: nonsense}`, invalidField: "spec.virtualWorkspaceURL"},
	{description: "accepts capacity in the status", existing: `spec: {baseURL: "https://a.test"}`, status: true, object: `{spec: {baseURL: "https://a.test"}, status: {capacity: {x: "10", y: 3}}}`},
	{description: "rejects an incomplete condition", existing: `spec: {baseURL: "https://a.test"}`, status: true, object: `{spec: {baseURL: "https://a.test"}, status: {conditions: [{status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, invalidField: "status.conditions[0].type"},
}

const mounted = `spec: {mount: {ref: {apiVersion: v1, kind: A, name: a, namespace: ns}}}`

var workspaceCases = []testCase{
	{description: "accepts an empty spec", object: `{}`},
	{description: "accepts all fields", object: `spec: {type: {name: team, path: "root:org"}, location: {selector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}}, cluster: x, URL: "https://example.test"}`},
	{description: "accepts a mount", object: mounted},
	{description: "accepts a name of digits", name: "1", object: `{}`},
	{description: "rejects a name with a dot", name: "a.b", object: `{}`, invalidField: "metadata.name"},
	{description: "rejects a name that ends with a dash", name: "a-", object: `{}`, invalidField: "metadata.name"},
	{description: "rejects a name of 64 characters", name: "a123456789012345678901234567890123456789012345678901234567890123", object: `{}`, invalidField: "metadata.name"},
	{description: "rejects a type without a name", object: `spec: {type: {path: root}}`, invalidField: "spec.type.name"},
	{description: "rejects a type whose name starts with a digit", object: `spec: {type: {name: 1a}}`, invalidField: "spec.type.name"},
	{description: "accepts a type name with any suffix, as kcp", object: `spec: {type: {name: a_B}}`},
	{description: "rejects a malformed path", object: `spec: {type: {name: team, path: "root:"}}`, invalidField: "spec.type.path"},
	{description: "rejects a selector without a key", object: `spec: {location: {selector: {matchExpressions: [{operator: Exists}]}}}`, invalidField: "spec.location.selector.matchExpressions[0].key"},
	{description: "rejects a selector without an operator", object: `spec: {location: {selector: {matchExpressions: [{key: a}]}}}`, invalidField: "spec.location.selector.matchExpressions[0].operator"},
	{description: "accepts an invalid selector, which a condition reports", object: `spec: {location: {selector: {matchExpressions: [{key: a, operator: Nonsense}]}}}`},
	{description: "rejects a mount without a kind", object: `spec: {mount: {ref: {apiVersion: v1, name: a}}}`, invalidField: "spec.mount.ref.kind"},
	{description: "rejects a mount without a name", object: `spec: {mount: {ref: {apiVersion: v1, kind: A}}}`, invalidField: "spec.mount.ref.name"},
	{description: "rejects a mount without an API version", object: `spec: {mount: {ref: {kind: A, name: a}}}`, invalidField: "spec.mount.ref.apiVersion"},

	{description: "accepts setting the cluster", existing: `spec: {}`, object: `spec: {cluster: a}`},
	{description: "rejects another cluster", existing: `spec: {cluster: a}`, object: `spec: {cluster: b}`, invalidField: "spec.cluster"},
	{description: "rejects unsetting the cluster", existing: `spec: {cluster: a}`, object: `spec: {}`, invalidField: "spec"},
	{description: "accepts another URL", existing: `spec: {URL: "https://a.test"}`, object: `spec: {URL: "https://b.test"}`},
	{description: "rejects unsetting the URL", existing: `spec: {URL: "https://a.test"}`, object: `spec: {}`, invalidField: "spec"},
	{description: "accepts setting the type", existing: `spec: {}`, object: `spec: {type: {name: team, path: root}}`},
	{description: "rejects another type name", existing: `spec: {type: {name: team, path: root}}`, object: `spec: {type: {name: other, path: root}}`, invalidField: "spec.type.name"},
	{description: "rejects another type path", existing: `spec: {type: {name: team, path: root}}`, object: `spec: {type: {name: team, path: "root:a"}}`, invalidField: "spec.type.path"},
	{description: "rejects unsetting the type path", existing: `spec: {type: {name: team, path: root}}`, object: `spec: {type: {name: team}}`, invalidField: "spec.type.path"},
	{description: "rejects another mounted name", existing: mounted, object: `spec: {mount: {ref: {apiVersion: v1, kind: A, name: b, namespace: ns}}}`, invalidField: "spec.mount.ref"},
	{description: "rejects another mounted namespace", existing: mounted, object: `spec: {mount: {ref: {apiVersion: v1, kind: A, name: a, namespace: other}}}`, invalidField: "spec.mount.ref"},
	{description: "rejects unsetting the mounted namespace", existing: mounted, object: `spec: {mount: {ref: {apiVersion: v1, kind: A, name: a}}}`, invalidField: "spec.mount.ref"},
	{description: "rejects another mounted kind", existing: mounted, object: `spec: {mount: {ref: {apiVersion: v1, kind: B, name: a, namespace: ns}}}`, invalidField: "spec.mount.ref"},

	{description: "accepts a full status", status: true, object: `status: {phase: Initializing, initializers: ["root:universal"], conditions: [{type: A, status: "False", severity: Info, reason: R, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`},
	{description: "rejects an unknown phase", status: true, object: `status: {phase: Nonsense}`, invalidField: "status.phase"},
	{description: "rejects a malformed initializer in the status", status: true, object: `status: {initializers: [x]}`, invalidField: "status.initializers[0]"},
}

var workspaceTypeCases = []testCase{
	{description: "accepts an empty spec", object: `spec: {}`},
	{description: "accepts all fields", object: `
spec:
  initializer: true
  terminator: true
  initializerPermissions: [{verbs: [get], apiGroups: [""], resources: [configmaps]}]
  terminatorPermissions: [{verbs: []}]
  extend: {with: [{name: universal, path: root}]}
  additionalWorkspaceLabels: {a: b}
  defaultChildWorkspaceType: {name: team, path: root}
  limitAllowedChildren: {types: [{name: universal, path: root}]}
  limitAllowedParents: {none: true}
  defaultAPIBindings: [{export: tenancy.kcp.io, path: root}, {export: own}]
  defaultAPIBindingLifecycle: Maintain
  authenticationConfigurations: [{name: a}]`},
	{description: "rejects the name system", name: "system", object: `spec: {}`, invalidField: "metadata.name"},
	{description: "rejects the name any", name: "any", object: `spec: {}`, invalidField: "metadata.name"},
	{description: "rejects a name with a dot", name: "a.b", object: `spec: {}`, invalidField: "metadata.name"},
	{description: "rejects a rule without verbs", object: `spec: {initializerPermissions: [{resources: [x]}]}`, invalidField: "spec.initializerPermissions[0].verbs"},
	{description: "rejects a terminator's rule without verbs", object: `spec: {terminatorPermissions: [{resources: [x]}]}`, invalidField: "spec.terminatorPermissions[0].verbs"},
	{description: "rejects a base type without a name", object: `spec: {extend: {with: [{path: root}]}}`, invalidField: "spec.extend.with[0].name"},
	{description: "rejects a base type with a malformed path", object: `spec: {extend: {with: [{name: a, path: "Root"}]}}`, invalidField: "spec.extend.with[0].path"},
	{description: "rejects a default child without a name", object: `spec: {defaultChildWorkspaceType: {path: root}}`, invalidField: "spec.defaultChildWorkspaceType.name"},
	{description: "rejects neither none nor types", object: `spec: {limitAllowedChildren: {}}`, invalidField: "spec.limitAllowedChildren"},
	{description: "rejects both none and types", object: `spec: {limitAllowedParents: {none: true, types: [{name: a}]}}`, invalidField: "spec.limitAllowedParents"},
	{description: "rejects none in addition to types even if it is false", object: `spec: {limitAllowedParents: {none: false, types: [{name: a}]}}`, invalidField: "spec.limitAllowedParents"},
	{description: "accepts none that is false", object: `spec: {limitAllowedParents: {none: false}}`},
	{description: "rejects an empty list of types", object: `spec: {limitAllowedParents: {types: []}}`, invalidField: "spec.limitAllowedParents.types"},
	{description: "rejects an allowed type with a malformed name", object: `spec: {limitAllowedChildren: {types: [{name: 1a}]}}`, invalidField: "spec.limitAllowedChildren.types[0].name"},
	{description: "rejects a binding without an export", object: `spec: {defaultAPIBindings: [{path: root}]}`, invalidField: "spec.defaultAPIBindings[0].export"},
	{description: "rejects a binding with a malformed path", object: `spec: {defaultAPIBindings: [{export: a, path: ":"}]}`, invalidField: "spec.defaultAPIBindings[0].path"},
	{description: "rejects an unknown lifecycle", object: `spec: {defaultAPIBindingLifecycle: Sometimes}`, invalidField: "spec.defaultAPIBindingLifecycle"},
	{description: "rejects an empty lifecycle", object: `spec: {defaultAPIBindingLifecycle: ""}`, invalidField: "spec.defaultAPIBindingLifecycle"},
	{description: "rejects an authentication configuration without a name", object: `spec: {authenticationConfigurations: [{}]}`, invalidField: "spec.authenticationConfigurations[0].name"},
	{description: "accepts addresses in the status", status: true, existing: `spec: {}`, object: `{spec: {}, status: {virtualWorkspaces: [{url: "https://a.test", type: initializing}, {url: "https://b.test"}]}}`},
	{description: "rejects an address without a URL", status: true, existing: `spec: {}`, object: `{spec: {}, status: {virtualWorkspaces: [{type: initializing}]}}`, invalidField: "status.virtualWorkspaces[0].url"},
	{description: "rejects an address of unknown type", status: true, existing: `spec: {}`, object: `{spec: {}, status: {virtualWorkspaces: [{url: x, type: other}]}}`, invalidField: "status.virtualWorkspaces[0].type"},
}
