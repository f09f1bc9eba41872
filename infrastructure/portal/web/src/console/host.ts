import { APIError } from '../api'
import { type Feed, mostItems } from '../feed'
import type { Backup, BackupSchedule, BackupStore, Condition, Operated, Restore, RestoreDrill, RootShard } from '../types'
import { useFeed } from '../watches'

/** kinds are those of the operator that the page shows, by resource, with their names. */
export const kinds: Record<string, string> = {
  rootshards: 'RootShard', shards: 'Shard', frontproxies: 'FrontProxy', cacheservers: 'CacheServer', virtualworkspaces: 'VirtualWorkspace',
  backupstores: 'BackupStore', backups: 'Backup', backupschedules: 'BackupSchedule', restores: 'Restore', restoredrills: 'RestoreDrill',
}

/** servers are the kinds with pods. */
export const servers = ['rootshards', 'shards', 'cacheservers', 'virtualworkspaces', 'frontproxies'] as const

/** Host has the operator's objects of the installation. */
export interface Host {
  rootshards: Feed<RootShard>
  shards: Feed<Operated>
  frontproxies: Feed<Operated>
  cacheservers: Feed<Operated>
  virtualworkspaces: Feed<Operated>
  backupstores: Feed<BackupStore>
  backups: Feed<Backup>
  backupschedules: Feed<BackupSchedule>
  restores: Feed<Restore>
  restoredrills: Feed<RestoreDrill>
}

function useKind<T extends Operated>(resource: string, maximum?: number): Feed<T> {
  return useFeed<T>(`/installation/${resource}`, undefined, maximum)
}

export function useHost(): Host {
  return {
    rootshards: useKind('rootshards'), shards: useKind('shards'), frontproxies: useKind('frontproxies'), cacheservers: useKind('cacheservers'),
    virtualworkspaces: useKind('virtualworkspaces'), backupstores: useKind('backupstores'), backups: useKind('backups', mostItems), // the newest may be the last by name
   
    backupschedules: useKind('backupschedules'), restores: useKind('restores'), restoredrills: useKind('restoredrills'),
  }
}

/** feedOf returns the objects of a resource that the address names. */
export function feedOf(host: Host, resource: string): Feed<Operated> | undefined {
  return Object.hasOwn(kinds, resource) ? (host[resource as keyof Host] as Feed<Operated>) : undefined
}

export function feeds(host: Host): [string, Feed<Operated>][] {
  return Object.keys(kinds).map((resource) => [resource, feedOf(host, resource)!])
}

/** isAbsent says whether a feed has failed because the host cluster does not have the kind. */
export function isAbsent({ state, error }: Feed<any>): boolean {
  return state === 'failed' && error instanceof APIError && error.status.code === 404
}

/** Tone is how good something is: as it should be, in the hands of the operator, or in those of a person. */
export type Tone = 'good' | 'progress' | 'bad'

/** Finding is what is not as it should be. */
export interface Finding {
  tone: Tone
  resource: string
  object: Operated
  condition: Condition
}

export function conditionOf(object: Operated, type: string): Condition | undefined {
  return object.status?.conditions?.find((condition) => condition.type === type)
}

export function isTrue(object: Operated, type: string): boolean {
  return conditionOf(object, type)?.status === 'True'
}

const summaries = ['Ready', 'Reconciling', 'Stalled']
/** intended are conditions that are False while something happens that a user has asked for. */
const intended = ['Drained', 'Balanced', 'CertificatesRekeyed', 'WorkspacesGone']
/** passing are reasons that end by themselves, of conditions without effect on Ready. */
const passing = ['Waiting', 'DeletingNamespace']
/** waiting are reasons of several parts that the operator works on at a time, such as at the first start: that of Reconciling is only the first. */
const waiting = [
  'Issuing', 'Finding', 'WaitingForCertificates', 'CertificateAuthoritiesUnknown', 'Bootstrapping', 'Updating', 'DeploymentUnavailable', 'ReplicasUnavailable', 'RollingOut', 'RolloutSlotTaken',
  'GatheringChanges', 'WaitingForTurn', 'InstallationWeakened', 'ServerNotReady', 'ProbeWorkspaceFails', 'ReplicationLags',
]
/** notPassing are conditions that may be False, for another reason, while the operator works on something else. */
const notPassing = ['EtcdHealthy', 'SpecHonored', 'Reachable', 'Released', 'Consistent', 'Current', 'RetentionEnforced']
/** mistakes are reasons that end when somebody creates, corrects or removes something, though the operator waits for that. */
const mistakes = ['SourceNotFound', 'SecretNotFound', 'InvalidReference', 'ReferenceNotFound', 'RolloutPaused']
/** soon is how long before its expiry a certificate authority is a finding, in milliseconds: cert-manager renews it earlier. */
const soon = 30 * 24 * 3_600_000

/** findingsOf returns what is not as it should be with an object: the parts that its conditions name, or else the object as a whole. */
export function findingsOf(resource: string, object: Operated): Finding[] {
  const found = (tone: Tone, condition: Condition): Finding => ({ tone, resource, object, condition })
  const { metadata, status = {} } = object
  const conditions = status.conditions ?? []
  const ready = conditionOf(object, 'Ready')
  if (metadata.deletionTimestamp) return [found(isTrue(object, 'Stalled') ? 'bad' : 'progress', conditionOf(object, 'WorkspacesGone') ?? { type: 'Deleting', status: 'True', message: 'It is being deleted.' })]
  if (!ready) return [found('progress', { type: 'Ready', status: 'Unknown', message: 'The operator has not reported on it yet. If that stays so, look whether the operator runs.' })]
  if ((status.observedGeneration ?? 0) < (metadata.generation ?? 0)) return [found('progress', { type: 'Reconciling', status: 'True', message: 'The operator has not acted on the last change of its spec yet.' })]
  const parts = conditions.filter(({ type, status, reason = '' }) => status !== 'True' && !summaries.includes(type) && (!intended.includes(type) || reason === 'Blocked') && !isHistory(object, type))
    .map((condition) => found(passes(object, condition) ? 'progress' : 'bad', condition))
  if (parts.length === 0 && ready.status !== 'True') parts.push(found(passes(object, ready) ? 'progress' : 'bad', ready))
  return [...parts, ...expiring(object as RootShard).map((condition) => found('bad', condition))]
}

/** passes says whether a condition becomes True without a person. The operator works on what is the reason of Reconciling, and on nothing else for certain. */
function passes(object: Operated, { type, reason = '' }: Condition): boolean {
  if (passing.includes(reason)) return true
  const reconciling = conditionOf(object, 'Reconciling')
  if (isTrue(object, 'Ready') || reconciling?.status !== 'True' || isTrue(object, 'Stalled')) return false
  return !notPassing.includes(type) && !mistakes.includes(reason) && (reason === reconciling.reason || waiting.includes(reason))
}

/** isHistory says whether a condition is of the past: a Restore is compared until it is released, and keeps the last result. */
function isHistory(object: Operated, type: string): boolean {
  return type === 'Consistent' && isTrue(object, 'Released')
}

/** expiring returns the certificate authorities of a RootShard that end soon, as conditions. */
function expiring({ status }: RootShard): Condition[] {
  return (status?.certificates?.cas ?? []).filter(({ notAfter }) => notAfter && Date.parse(notAfter) - Date.now() < soon).map(({ name, notAfter }) => ({
    type: 'CertificateExpires', status: 'True', reason: name,
    message: `The certificate of ${name} ${Date.parse(notAfter!) < Date.now() ? 'has expired' : 'expires'} on ${new Date(notAfter!).toLocaleDateString('en-GB', { dateStyle: 'long' })}.`,
  }))
}

/** allFindings returns those of the installation. Of Backups and Restores, only the newest of each RootShard or Shard counts, and what is not released: others are history. */
export function allFindings(host: Host): Finding[] {
  const found = feeds(host).flatMap(([resource, feed]) => {
    const objects = resource === 'backups' || resource === 'restores' ? newestOfEach([...feed.items.values()]) : feed.sorted
    return objects.flatMap((object) => findingsOf(resource, object))
  })
  return [...found.filter(({ tone }) => tone === 'bad'), ...found.filter(({ tone }) => tone === 'progress')]
}

/** newestFirst compares objects by the time at which they were created. */
export function newestFirst(a: Operated, b: Operated): number {
  return (b.metadata.creationTimestamp ?? '').localeCompare(a.metadata.creationTimestamp ?? '') || b.metadata.name.localeCompare(a.metadata.name)
}

/** newestOfEach leaves the newest object of each RootShard, or of each Shard that was restored alone. A Restore holds its shards until it is released, so that it stays. */
function newestOfEach(objects: Operated[]): Operated[] {
  const seen = new Set<string>()
  return objects.sort(newestFirst).filter((object) => {
    const of = `${object.spec?.rootShardRef?.name ?? ''}/${object.spec?.shard?.name ?? ''}`
    const newest = !seen.has(of)
    seen.add(of)
    return newest || conditionOf(object, 'Released')?.status === 'False'
  })
}

/** toneOf is that of the worst finding. */
export function toneOf(findings: Finding[]): Tone {
  return findings.some(({ tone }) => tone === 'bad') ? 'bad' : findings.length > 0 ? 'progress' : 'good'
}

/** lastCompleted is when the last Backup was complete, by Backups and by the schedules that made them. */
export function lastCompleted({ backups, backupschedules }: Host): string {
  const times = [
    ...[...backups.items.values()].filter(({ status }) => status?.phase === 'Completed').map(({ status }) => status?.stoppedAt),
    ...[...backupschedules.items.values()].map(({ status }) => status?.lastSuccessfulTime),
  ]
  return times.filter((time) => time !== undefined).sort().at(-1) ?? ''
}

/** steps are what to do about a condition, where its message does not say it. */
const steps: Record<string, string> = {
  Available: 'Run the command in the message: it lists the pods.',
  ProxyAvailable: 'Run the command in the message: it lists the pods of the internal proxy.',
  CertificatesReady: 'See what cert-manager says: kubectl describe certificates, in the namespace of the installation.',
  CertificateExpires: 'See why cert-manager does not renew it: kubectl describe certificates, in the namespace of the installation.',
  EtcdAvailable: 'Do what the message says. If members or data are lost, follow “Repair etcd” in the documentation of the operator.',
  EtcdHealthy: 'Data is less redundant, or writes are rejected. The message says what the operator does, and what is left to you.',
  SpecHonored: 'Correct what the message lists in the spec.',
  RootShard: 'Create it, or correct the name.',
  ReferenceValid: 'Create it, or correct the name.',
  Reachable: 'Check the address, the credentials and the network of the store.',
  Completed: 'Correct what the message names, then make another one: one that has failed stays so.',
  Released: 'Compare the installation with what you expect, then set spec.release of the Restore: until then, the shards delete nothing.',
  Consistent: 'Repair what the message names before you release: see “Restore one shard” in the documentation of the operator.',
  Scheduled: 'Do what the message says; nothing else is due meanwhile.',
  Current: 'Look at the last one: its message says why it has failed.',
  RetentionEnforced: 'Allow in the store what the message names.',
  WorkspacesGone: 'Delete or move the workspaces that the message counts.',
}

/** stepOf is what to do about a finding. */
export function stepOf({ tone, condition: { type, reason } }: Finding): string {
  if (reason === 'RolloutStopped') return 'Put back what was changed, or correct the spec: the component continues at once. Nothing is reverted by itself.'
  if (reason === 'RolloutPaused') return 'Remove the annotation operator.kcp.io/pause-rollout to go on.'
  const step = reason === 'AwaitsRestore' ? 'See the Restore that the message names, or create it.' : steps[type]
  if (tone === 'progress') return step ? `The operator works on it. If that does not end: ${step}` : 'The operator works on it; nothing to do.'
  return step ?? 'Do what the message says.'
}
