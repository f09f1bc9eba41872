import { Age, Command } from '../components/parts'
import type { Operated } from '../types'
import { conditionOf, type Host, kinds, servers, type Tone } from './host'
import { Mark, ObjectLink } from './host-parts'

const annotations: [string, string][] = [['operator.kcp.io/pause-rollout', 'paused by an annotation'], ['operator.kcp.io/rollout-now', 'without order and checks, by an annotation']]

/** reasons are what the condition RolledOut says, in words. */
const reasons: Record<string, [Tone, string]> = {
  Current: ['good', 'Rolled out'], RollingOut: ['progress', 'Rolling out'], RolloutStopped: ['bad', 'Stopped'], RolloutPaused: ['bad', 'Paused'],
  GatheringChanges: ['progress', 'Waits'], WaitingForTurn: ['progress', 'Waits for its turn'], RolloutSlotTaken: ['progress', 'Waits for its turn'],
  InstallationWeakened: ['progress', 'Waits for health'], ServerNotReady: ['progress', 'Waits for health'], ProbeWorkspaceFails: ['progress', 'Waits for health'], ReplicationLags: ['progress', 'Waits for health'],
}

interface Step {
  resource: string
  object: Operated
}

/** order returns the servers in the order in which they roll out: caches, those below another one later, root shards, shards, virtual workspaces, proxies. */
function order(host: Host): Step[] {
  const of = (resource: (typeof servers)[number], filter: (object: Operated) => boolean = () => true): Step[] => host[resource].sorted.filter(filter).map((object) => ({ resource, object }))
  const isBelowRoot = ({ spec }: Operated) => (spec?.parent as { rootShardRef?: object } | undefined)?.rootShardRef !== undefined
  return [
    ...of('cacheservers', ({ spec }) => !spec?.parent), ...of('cacheservers', (cache) => Boolean(cache.spec?.parent) && !isBelowRoot(cache)),
    ...of('rootshards'), ...of('cacheservers', isBelowRoot), ...of('shards'), ...of('virtualworkspaces'), ...of('frontproxies'),
  ]
}

/** Rollouts has the servers in the order in which the operator replaces their pods, with what each waits for. */
export function Rollouts({ host }: { host: Host }) {
  const steps = order(host)
  if (steps.length === 0) return servers.every((resource) => host[resource].state === 'current') ? <p class="panel empty">There is no server that could roll out: the namespace has no RootShard, and none of the others.</p> : null
  return (
    <>
      <p>The operator replaces pods in this order, one server at a time, and begins each only while the installation is healthy. Old pods serve until new ones are ready.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Rollouts">
        <table class="stack">
          <thead><tr><th scope="col">Server</th><th scope="col">State</th><th scope="col">Version</th><th scope="col">Message</th><th scope="col">Since</th></tr></thead>
          <tbody>
            {steps.map(({ resource, object }, index) => {
              const condition = conditionOf(object, 'RolledOut')
              const [tone, word] = condition?.status === 'True' ? reasons.Current! : reasons[condition?.reason ?? ''] ?? ['progress', condition?.reason ?? 'Not reported']
              return (
                <tr key={`${resource}/${object.metadata.name}`} data-rollout={object.metadata.name}>
                  <th scope="row">{index + 1}. <ObjectLink resource={resource} name={object.metadata.name} /> <span class="muted">{kinds[resource]}</span></th>
                  <td data-label="State">
                    <div>
                      <Mark tone={tone}>{word}</Mark>
                      {annotations.filter(([name]) => object.metadata.annotations?.[name] === 'true').map(([name, text]) => <div key={name} class="muted">{text}</div>)}
                    </div>
                  </td>
                  <td data-label="Version">{object.status?.version ? <code>{object.status.version}</code> : <span class="muted">several, or none</span>}</td>
                  <td data-label="Message" class="text">{condition?.status !== 'True' && condition?.message}</td>
                  <td data-label="Since"><Age time={condition?.lastTransitionTime} /></td>
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      <Hints steps={steps} />
    </>
  )
}

/** Hints are what to do about a rollout that does not go on, or is to wait. */
function Hints({ steps }: { steps: Step[] }) {
  const of = (reason: string) => steps.find(({ object }) => conditionOf(object, 'RolledOut')?.reason === reason)
  const [root] = steps.filter(({ resource }) => resource === 'rootshards')
  const stopped = of('RolloutStopped')
  const command = root && `kubectl --namespace ${root.object.metadata.namespace} annotate rootshards.operator.kcp.io ${root.object.metadata.name}`
  return (
    <>
      {stopped && <p>A rollout that has stopped goes on when its new pods become healthy, or when you put back what was changed or correct the spec. Nothing is reverted by itself.</p>}
      {root && of('RolloutPaused') && <><p>To go on after a pause:</p><Command text={`${command} operator.kcp.io/pause-rollout-`} /></>}
      {root && !of('RolloutPaused') && <><p>To let no further server begin:</p><Command text={`${command} operator.kcp.io/pause-rollout=true`} /></>}
      {root && stopped && <><p>To repair another server while one has stopped, leave out order and checks. Remove the annotation afterwards:</p><Command text={`${command} operator.kcp.io/rollout-now=true`} /></>}
    </>
  )
}
