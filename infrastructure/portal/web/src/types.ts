/** What the portal reads of Kubernetes objects. */
export interface ObjectMeta {
  name: string
  namespace?: string
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
  spec: { baseURL: string; externalURL?: string; virtualWorkspaceURL?: string; resourceLimits?: { soft?: Record<string, string>; hard?: Record<string, string> } }
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

/** Operated is an object of the operator in the host cluster: what all its kinds have. */
export interface Operated extends KubeObject {
  spec?: { rootShard?: { ref?: Reference }; rootShardRef?: Reference; shard?: Reference; parent?: object; [field: string]: unknown }
  status?: { phase?: string; version?: string; endpoint?: string; etcd?: object; observedGeneration?: number; conditions?: Condition[]; [field: string]: unknown }
}

export interface Reference {
  name?: string
}

export interface RootShard extends Operated {
  status?: Operated['status'] & { shardCount?: number; certificates?: { cas?: CertificateAuthority[] } }
}

/** CertificateAuthority is what can be re-keyed: a certificate authority, or the keys of service account tokens. */
export interface CertificateAuthority {
  name: string
  phase: string
  generation: number
  nextGeneration?: number
  notAfter?: string
  blockedBy?: string[]
  readySince?: string
}

export interface BackupStore extends Operated {
  spec?: Operated['spec'] & { endpointURL?: string; bucket?: string; prefix?: string }
}

export interface Backup extends Operated {
  spec?: Operated['spec'] & { storeRef?: Reference }
  status?: Operated['status'] & { startedAt?: string; stoppedAt?: string; duration?: string; size?: string; shards?: number; logicalClusters?: number }
}

export interface BackupSchedule extends Operated {
  spec?: Operated['spec'] & { storeRef?: Reference; schedule?: string; timeZone?: string; suspend?: boolean }
  status?: Operated['status'] & { lastBackup?: string; lastScheduleTime?: string; lastSuccessfulTime?: string; nextScheduleTime?: string }
}

export interface Restore extends Operated {
  spec?: Operated['spec'] & { backupId?: string; release?: boolean }
  status?: Operated['status'] & { backupTakenAt?: string; startedAt?: string; stoppedAt?: string; duration?: string }
}

/** DrillRun is one drill of a RestoreDrill. */
export interface DrillRun {
  backup: string
  startedAt: string
  stoppedAt?: string
  result?: string
  recoveryTime?: string
  dataLoss?: string
  savedLogicalClusters?: number
  logicalClusters?: number
  message?: string
}

export interface RestoreDrill extends Operated {
  spec?: Operated['spec'] & { schedule?: string; timeZone?: string; suspend?: boolean }
  status?: Operated['status'] & { active?: DrillRun; history?: DrillRun[]; lastResult?: string; lastSuccessfulTime?: string; nextScheduleTime?: string; recoveryTime?: string; dataLoss?: string }
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
  /** installation is whether the server reads the operator's objects in the host cluster. */
  installation?: boolean
  oidc?: { issuerURL: string; clientID: string }
}
