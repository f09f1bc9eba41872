/** What the portal reads of Kubernetes objects. */
export interface ObjectMeta {
  name: string
  uid?: string
  resourceVersion?: string
  generation?: number
  creationTimestamp?: string
  deletionTimestamp?: string
  labels?: Record<string, string>
  annotations?: Record<string, string>
  managedFields?: unknown
}

export interface KubeObject {
  apiVersion?: string
  kind?: string
  metadata: ObjectMeta
}

export interface Condition {
  type: string
  status: string
  reason?: string
  message?: string
  lastTransitionTime?: string
}

export interface Instance extends KubeObject {
  spec?: Record<string, unknown>
  status?: InstanceStatus
}

export interface InstanceStatus {
  phase?: string
  message?: string
  observedGeneration?: number
  conditions?: Condition[]
  connectionSecret?: { namespace?: string; name?: string }
  [output: string]: unknown
}

export interface Template extends KubeObject {
  spec: {
    displayName: string
    description?: string
    category?: string
    version: string
    iconURL?: string
    instanceCRD: { group: string; version: string; kind: string; resource: string }
    schema: Schema
    sampleValues?: Record<string, unknown>
    agent?: { usage?: string; prerequisites?: string[]; outputs?: string[] }
  }
}

export interface Workspace extends KubeObject {
  spec?: { type?: { name: string; path?: string }; cluster?: string; URL?: string; mount?: { ref: { apiVersion: string; kind: string; name: string; namespace?: string } } }
  status?: ClusterStatus
}

export interface ClusterStatus {
  phase?: string
  URL?: string
  conditions?: Condition[]
  initializers?: string[]
  terminators?: string[]
}

export interface LogicalCluster extends KubeObject {
  spec?: { createdBy?: { username?: string } }
  status?: ClusterStatus
}

/** Selector selects objects by label, or all. */
export interface Selector {
  matchAll?: boolean
  matchLabels?: Record<string, string>
  matchExpressions?: unknown[]
}

export interface PermissionClaim {
  group?: string
  resource: string
  identityHash?: string
  verbs: string[]
  defaultSelector?: Selector
}

/** AcceptableClaim is a claim with the answer of a binding. */
export interface AcceptableClaim extends PermissionClaim {
  selector?: Selector
  state: string
}

export interface APIBinding extends KubeObject {
  spec: { reference: { export?: { path?: string; name: string } }; permissionClaims?: AcceptableClaim[] }
  status?: {
    phase?: string
    boundResources?: { group: string; resource: string }[]
    exportPermissionClaims?: PermissionClaim[]
    appliedPermissionClaims?: PermissionClaim[]
    conditions?: Condition[]
  }
}

export interface APIExport extends KubeObject {
  spec?: { resources?: { name: string; group: string }[]; permissionClaims?: PermissionClaim[]; maximalPermissionPolicy?: { local?: object } }
  status?: { identityHash?: string; conditions?: Condition[] }
}

export interface EndpointSlice extends KubeObject {
  spec: { export: { path?: string; name: string }; partition?: string }
  status?: { endpoints?: { url: string }[]; shardSelector?: string; conditions?: Condition[] }
}

export interface Shard extends KubeObject {
  spec: { baseURL: string; externalURL?: string; resourceLimits?: { soft?: Record<string, string>; hard?: Record<string, string> } }
  status?: { capacity?: Record<string, string>; load?: Record<string, string>; used?: Record<string, string>; conditions?: Condition[] }
}

/** MoveCondition is a condition with the severity of its being False: Error, Warning or Info. */
export interface MoveCondition extends Condition {
  severity?: string
}

/** LogicalClusterMigration moves a logical cluster to another shard. */
export interface LogicalClusterMigration extends KubeObject {
  spec: { logicalCluster: string; destinationShard: string }
  status?: { phase?: string; originShard?: string; entriesCopied?: number; conditions?: MoveCondition[] }
}

/** Schema is the part of an OpenAPI v3 schema from which forms are made. */
export interface Schema {
  type?: string
  title?: string
  description?: string
  format?: string
  default?: unknown
  enum?: unknown[]
  required?: string[]
  properties?: Record<string, Schema>
  additionalProperties?: boolean | Schema
  items?: Schema
  minimum?: number
  maximum?: number
  exclusiveMinimum?: boolean
  exclusiveMaximum?: boolean
  multipleOf?: number
  minLength?: number
  maxLength?: number
  pattern?: string
  minItems?: number
  maxItems?: number
  uniqueItems?: boolean
  nullable?: boolean
  'x-kubernetes-int-or-string'?: boolean
  'x-kubernetes-preserve-unknown-fields'?: boolean
  'x-kubernetes-validations'?: { rule: string; message?: string }[]
}

/** Status is the answer of a server to a request that failed. */
export interface Status {
  code: number
  message: string
  reason?: string
  details?: { name?: string; kind?: string; causes?: Cause[] }
}

export interface Cause {
  reason?: string
  message?: string
  field?: string
}

export interface Config {
  group: string
  version: string
  export: string
  providerWorkspace?: string
  /** console is whether the area of administrators is offered. */
  console?: boolean
  oidc?: { issuerURL: string; clientID: string }
}
