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

// verdict is one write and its expected result.
type verdict struct {
	sentence string
	// name of the object; the default is that of the group of cases.
	name string
	// before is the object before an update, as YAML; empty: the case is a creation (or, for a status, starts with an
	// object without a spec).
	before string
	// object is the object in the request, as YAML, without name and kind.
	object string
	// status selects the status subresource.
	status bool
	// refusedAt is the field of the expected error; empty: the write is accepted.
	refusedAt string
}

// isInvalid reports whether the error is a 422 with the field.
func isInvalid(err error, at string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == at {
			return true
		}
	}
	return false
}

const owner = `{apiVersion: tenancy.kcp.io/v1alpha1, resource: workspaces, name: a, cluster: root, uid: u}`

var logicalClusterVerdicts = []verdict{
	{sentence: "accepts an empty one", object: `{}`},
	{sentence: "accepts one with everything", object: `spec: {directlyDeletable: true, owner: ` + owner + `, createdBy: {username: a, groups: [b], extra: {c: [d]}}, initializers: ["root:universal", "system:apibindings"], terminators: ["root:universal"]}`},
	{sentence: "refuses another name", name: "other", object: `{}`, refusedAt: "metadata.name"},
	{sentence: "refuses an initializer of one segment", object: `spec: {initializers: [universal]}`, refusedAt: "spec.initializers[0]"},
	{sentence: "refuses an initializer whose last segment has one letter", object: `spec: {initializers: ["root:u"]}`, refusedAt: "spec.initializers[0]"},
	{sentence: "refuses an empty initializer", object: `spec: {initializers: ["root:universal", ""]}`, refusedAt: "spec.initializers[1]"},
	{sentence: "accepts an initializer that ends like one of the system", object: `spec: {initializers: ["!system:x"]}`},
	{sentence: "refuses a malformed terminator", object: `spec: {terminators: ["Root:Universal"]}`, refusedAt: "spec.terminators[0]"},
	{sentence: "refuses an owner without a cluster", object: `spec: {owner: {apiVersion: v1, resource: x, name: a, uid: u}}`, refusedAt: "spec.owner.cluster"},
	{sentence: "refuses an owner without a name", object: `spec: {owner: {apiVersion: v1, resource: x, cluster: a, uid: u}}`, refusedAt: "spec.owner.name"},
	{sentence: "refuses an owner without a resource", object: `spec: {owner: {apiVersion: v1, name: a, cluster: a, uid: u}}`, refusedAt: "spec.owner.resource"},
	{sentence: "refuses an owner without an API version", object: `spec: {owner: {resource: x, name: a, cluster: a, uid: u}}`, refusedAt: "spec.owner.apiVersion"},
	{sentence: "refuses an owner without a UID", object: `spec: {owner: {apiVersion: v1, resource: x, name: a, cluster: a}}`, refusedAt: "spec.owner.uid"},
	{sentence: "refuses an owner with two slashes in its API version", object: `spec: {owner: {apiVersion: a/b/c, resource: x, name: a, cluster: a, uid: u}}`, refusedAt: "spec.owner.apiVersion"},
	{sentence: "refuses a change to something invalid", before: `spec: {}`, object: `spec: {initializers: [x]}`, refusedAt: "spec.initializers[0]"},
	{sentence: "ignores an invalid status on the main resource", before: `spec: {}`, object: `{spec: {directlyDeletable: true}, status: {phase: Nonsense}}`},

	{sentence: "accepts a full status", status: true, object: `status: {URL: "https://example.test", phase: Ready, initializers: ["root:universal"], terminators: ["root:universal"], conditions: [{type: A, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`},
	{sentence: "refuses an unknown phase", status: true, object: `status: {phase: Nonsense}`, refusedAt: "status.phase"},
	{sentence: "refuses a malformed initializer in the status", status: true, object: `status: {initializers: [x]}`, refusedAt: "status.initializers[0]"},
	{sentence: "refuses a malformed terminator in the status", status: true, object: `status: {terminators: [x]}`, refusedAt: "status.terminators[0]"},
	{sentence: "refuses a condition without a type", status: true, object: `status: {conditions: [{status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, refusedAt: "status.conditions[0].type"},
	{sentence: "refuses a condition without a status", status: true, object: `status: {conditions: [{type: A, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, refusedAt: "status.conditions[0].status"},
	{sentence: "refuses a condition without a time", status: true, object: `status: {conditions: [{type: A, status: "True"}]}`, refusedAt: "status.conditions[0].lastTransitionTime"},
}

var shardVerdicts = []verdict{
	{sentence: "accepts a base URL alone", object: `spec: {baseURL: "https://a.test:6443"}`},
	{sentence: "accepts three URLs", object: `spec: {baseURL: "https://a.test", externalURL: "https://b.test", virtualWorkspaceURL: "https://c.test/x"}`},
	{sentence: "accepts a name with dots", name: "a.b", object: `spec: {baseURL: "https://a.test"}`},
	{sentence: "refuses a name in capitals", name: "A", object: `spec: {baseURL: "https://a.test"}`, refusedAt: "metadata.name"},
	{sentence: "refuses no base URL", object: `spec: {}`, refusedAt: "spec.baseURL"},
	{sentence: "refuses a base URL that is none", object: `spec: {baseURL: "a b"}`, refusedAt: "spec.baseURL"},
	{sentence: "refuses an external URL that is none", object: `spec: {baseURL: "https://a.test", externalURL: nonsense}`, refusedAt: "spec.externalURL"},
	{sentence: "refuses a virtual workspace URL that is none", object: `spec: {baseURL: "https://a.test", virtualWorkspaceURL: nonsense}`, refusedAt: "spec.virtualWorkspaceURL"},
	{sentence: "accepts capacity in the status", before: `spec: {baseURL: "https://a.test"}`, status: true, object: `{spec: {baseURL: "https://a.test"}, status: {capacity: {x: "10", y: 3}}}`},
	{sentence: "refuses an incomplete condition", before: `spec: {baseURL: "https://a.test"}`, status: true, object: `{spec: {baseURL: "https://a.test"}, status: {conditions: [{status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, refusedAt: "status.conditions[0].type"},
}

const mounted = `spec: {mount: {ref: {apiVersion: v1, kind: A, name: a, namespace: ns}}}`

var workspaceVerdicts = []verdict{
	{sentence: "accepts an empty one", object: `{}`},
	{sentence: "accepts one with everything", object: `spec: {type: {name: team, path: "root:org"}, location: {selector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}}, cluster: x, URL: "https://example.test"}`},
	{sentence: "accepts a mount", object: mounted},
	{sentence: "accepts a name of digits", name: "1", object: `{}`},
	{sentence: "refuses a name with a dot", name: "a.b", object: `{}`, refusedAt: "metadata.name"},
	{sentence: "refuses a name that ends with a dash", name: "a-", object: `{}`, refusedAt: "metadata.name"},
	{sentence: "refuses a name of 64 characters", name: "a123456789012345678901234567890123456789012345678901234567890123", object: `{}`, refusedAt: "metadata.name"},
	{sentence: "refuses a type without a name", object: `spec: {type: {path: root}}`, refusedAt: "spec.type.name"},
	{sentence: "refuses a type whose name begins with a digit", object: `spec: {type: {name: 1a}}`, refusedAt: "spec.type.name"},
	{sentence: "accepts a type name with a strange end, as the reference does", object: `spec: {type: {name: a_B}}`},
	{sentence: "refuses a malformed path", object: `spec: {type: {name: team, path: "root:"}}`, refusedAt: "spec.type.path"},
	{sentence: "refuses a selector without a key", object: `spec: {location: {selector: {matchExpressions: [{operator: Exists}]}}}`, refusedAt: "spec.location.selector.matchExpressions[0].key"},
	{sentence: "refuses a selector without an operator", object: `spec: {location: {selector: {matchExpressions: [{key: a}]}}}`, refusedAt: "spec.location.selector.matchExpressions[0].operator"},
	{sentence: "accepts a selector that makes no sense, for a condition to tell", object: `spec: {location: {selector: {matchExpressions: [{key: a, operator: Nonsense}]}}}`},
	{sentence: "refuses a mount without a kind", object: `spec: {mount: {ref: {apiVersion: v1, name: a}}}`, refusedAt: "spec.mount.ref.kind"},
	{sentence: "refuses a mount without a name", object: `spec: {mount: {ref: {apiVersion: v1, kind: A}}}`, refusedAt: "spec.mount.ref.name"},
	{sentence: "refuses a mount without an API version", object: `spec: {mount: {ref: {kind: A, name: a}}}`, refusedAt: "spec.mount.ref.apiVersion"},

	{sentence: "lets the cluster be set", before: `spec: {}`, object: `spec: {cluster: a}`},
	{sentence: "refuses another cluster", before: `spec: {cluster: a}`, object: `spec: {cluster: b}`, refusedAt: "spec.cluster"},
	{sentence: "refuses to unset the cluster", before: `spec: {cluster: a}`, object: `spec: {}`, refusedAt: "spec"},
	{sentence: "lets the URL change", before: `spec: {URL: "https://a.test"}`, object: `spec: {URL: "https://b.test"}`},
	{sentence: "refuses to unset the URL", before: `spec: {URL: "https://a.test"}`, object: `spec: {}`, refusedAt: "spec"},
	{sentence: "lets the type be set", before: `spec: {}`, object: `spec: {type: {name: team, path: root}}`},
	{sentence: "refuses another type name", before: `spec: {type: {name: team, path: root}}`, object: `spec: {type: {name: other, path: root}}`, refusedAt: "spec.type.name"},
	{sentence: "refuses another type path", before: `spec: {type: {name: team, path: root}}`, object: `spec: {type: {name: team, path: "root:a"}}`, refusedAt: "spec.type.path"},
	{sentence: "refuses to unset the type path", before: `spec: {type: {name: team, path: root}}`, object: `spec: {type: {name: team}}`, refusedAt: "spec.type.path"},
	{sentence: "refuses another mounted name", before: mounted, object: `spec: {mount: {ref: {apiVersion: v1, kind: A, name: b, namespace: ns}}}`, refusedAt: "spec.mount.ref"},
	{sentence: "refuses another mounted namespace", before: mounted, object: `spec: {mount: {ref: {apiVersion: v1, kind: A, name: a, namespace: other}}}`, refusedAt: "spec.mount.ref"},
	{sentence: "refuses to unset the mounted namespace", before: mounted, object: `spec: {mount: {ref: {apiVersion: v1, kind: A, name: a}}}`, refusedAt: "spec.mount.ref"},
	{sentence: "refuses another mounted kind", before: mounted, object: `spec: {mount: {ref: {apiVersion: v1, kind: B, name: a, namespace: ns}}}`, refusedAt: "spec.mount.ref"},

	{sentence: "accepts a full status", status: true, object: `status: {phase: Initializing, initializers: ["root:universal"], conditions: [{type: A, status: "False", severity: Info, reason: R, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`},
	{sentence: "refuses an unknown phase", status: true, object: `status: {phase: Nonsense}`, refusedAt: "status.phase"},
	{sentence: "refuses a malformed initializer in the status", status: true, object: `status: {initializers: [x]}`, refusedAt: "status.initializers[0]"},
}

var workspaceTypeVerdicts = []verdict{
	{sentence: "accepts an empty spec", object: `spec: {}`},
	{sentence: "accepts one with everything", object: `
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
	{sentence: "refuses the name system", name: "system", object: `spec: {}`, refusedAt: "metadata.name"},
	{sentence: "refuses the name any", name: "any", object: `spec: {}`, refusedAt: "metadata.name"},
	{sentence: "refuses a name with a dot", name: "a.b", object: `spec: {}`, refusedAt: "metadata.name"},
	{sentence: "refuses a rule without verbs", object: `spec: {initializerPermissions: [{resources: [x]}]}`, refusedAt: "spec.initializerPermissions[0].verbs"},
	{sentence: "refuses a terminator's rule without verbs", object: `spec: {terminatorPermissions: [{resources: [x]}]}`, refusedAt: "spec.terminatorPermissions[0].verbs"},
	{sentence: "refuses a base type without a name", object: `spec: {extend: {with: [{path: root}]}}`, refusedAt: "spec.extend.with[0].name"},
	{sentence: "refuses a base type with a malformed path", object: `spec: {extend: {with: [{name: a, path: "Root"}]}}`, refusedAt: "spec.extend.with[0].path"},
	{sentence: "refuses a default child without a name", object: `spec: {defaultChildWorkspaceType: {path: root}}`, refusedAt: "spec.defaultChildWorkspaceType.name"},
	{sentence: "refuses neither none nor types", object: `spec: {limitAllowedChildren: {}}`, refusedAt: "spec.limitAllowedChildren"},
	{sentence: "refuses both none and types", object: `spec: {limitAllowedParents: {none: true, types: [{name: a}]}}`, refusedAt: "spec.limitAllowedParents"},
	{sentence: "refuses none beside types even if it is false", object: `spec: {limitAllowedParents: {none: false, types: [{name: a}]}}`, refusedAt: "spec.limitAllowedParents"},
	{sentence: "accepts none that is false", object: `spec: {limitAllowedParents: {none: false}}`},
	{sentence: "refuses an empty list of types", object: `spec: {limitAllowedParents: {types: []}}`, refusedAt: "spec.limitAllowedParents.types"},
	{sentence: "refuses an allowed type with a malformed name", object: `spec: {limitAllowedChildren: {types: [{name: 1a}]}}`, refusedAt: "spec.limitAllowedChildren.types[0].name"},
	{sentence: "refuses a binding without an export", object: `spec: {defaultAPIBindings: [{path: root}]}`, refusedAt: "spec.defaultAPIBindings[0].export"},
	{sentence: "refuses a binding with a malformed path", object: `spec: {defaultAPIBindings: [{export: a, path: ":"}]}`, refusedAt: "spec.defaultAPIBindings[0].path"},
	{sentence: "refuses an unknown lifecycle", object: `spec: {defaultAPIBindingLifecycle: Sometimes}`, refusedAt: "spec.defaultAPIBindingLifecycle"},
	{sentence: "refuses an empty lifecycle", object: `spec: {defaultAPIBindingLifecycle: ""}`, refusedAt: "spec.defaultAPIBindingLifecycle"},
	{sentence: "refuses an authentication configuration without a name", object: `spec: {authenticationConfigurations: [{}]}`, refusedAt: "spec.authenticationConfigurations[0].name"},
	{sentence: "accepts addresses in the status", status: true, before: `spec: {}`, object: `{spec: {}, status: {virtualWorkspaces: [{url: "https://a.test", type: initializing}, {url: "https://b.test"}]}}`},
	{sentence: "refuses an address without a URL", status: true, before: `spec: {}`, object: `{spec: {}, status: {virtualWorkspaces: [{type: initializing}]}}`, refusedAt: "status.virtualWorkspaces[0].url"},
	{sentence: "refuses an address of unknown type", status: true, before: `spec: {}`, object: `{spec: {}, status: {virtualWorkspaces: [{url: x, type: other}]}}`, refusedAt: "status.virtualWorkspaces[0].type"},
}
