import { Ban, CircleCheck } from 'lucide'
import { useState } from 'preact/hooks'
import { inWorkspace } from '../api'
import { consoleName } from '../components/brand'
import { Dialog } from '../components/dialog'
import { Glyph } from '../components/glyph'
import { Age, Command, Failure, Loading, plural, Title } from '../components/parts'
import type { Condition, Shard } from '../types'
import { useFeed } from '../watches'
import { Moves } from './moves'

/** cordonAnnotation closes a shard for new workspaces. */
const cordonAnnotation = 'experimental.core.kcp.io/unschedulable'

/** ShardsPage has the shards of the installation, which are objects in root. */
export function ShardsPage() {
  const feed = useFeed<Shard>(inWorkspace('root', 'apis', 'core.kcp.io', 'v1alpha1', 'shards'))
  const [chosen, setChosen] = useState<Shard>()
  return (
    <>
      <Title text="Shards" product={consoleName} />
      {feed.state === 'failed' && (
        <Failure kind="info" error={feed.error} what="list shards" where="">
          {' '}Shards are objects in the workspace root: an administrator of the installation can give you the right to get, list and watch shards.core.kcp.io there.
        </Failure>
      )}
      {feed.state === 'loading' && <Loading />}
      {feed.items.size > 0 && (
        <>
          <p role="status" id="shard-count">{plural(feed.items.size, 'shard')}</p>
          <div class="scroll" tabIndex={0} role="region" aria-label="Shards">
            <table class="stack">
              <thead><tr><th scope="col">Name</th><th scope="col">Ready</th><th scope="col">New workspaces</th><th scope="col">Load</th><th scope="col">Address</th><th scope="col">Actions</th></tr></thead>
              <tbody>{feed.sorted.map((shard) => <Row key={shard.metadata.name} shard={shard} onCordon={() => setChosen(shard)} />)}</tbody>
            </table>
          </div>
        </>
      )}
      {feed.state === 'current' && feed.items.size === 0 && <p class="panel empty">There are no Shard objects in root.</p>}
      <Moves />
      {chosen && <Cordon shard={chosen} onEnd={() => setChosen(undefined)} />}
    </>
  )
}

function isCordoned({ metadata }: Shard): boolean {
  return metadata.annotations?.[cordonAnnotation] !== undefined
}

function conditionOf(shard: Shard, type: string): Condition | undefined {
  return shard.status?.conditions?.find((condition) => condition.type === type)
}

function Row({ shard, onCordon }: { shard: Shard; onCordon: () => void }) {
  const { metadata, spec, status = {} } = shard
  const region = metadata.labels?.['region']
  const cordoned = isCordoned(shard)
  return (
    <tr data-shard={metadata.name}>
      <th scope="row">{metadata.name}{region && <span class="muted"> {region}</span>}</th>
      <td data-label="Ready"><State condition={conditionOf(shard, 'Ready')} good="Ready" bad="Not ready" /></td>
      <td data-label="New ones"><State condition={conditionOf(shard, 'Schedulable')} good="Accepted" bad="Refused" /></td>
      <td data-label="Load"><Load shard={shard} used={{ ...status.used, ...status.load }} /></td>
      <td data-label="Address" class="text"><code>{spec.externalURL || spec.baseURL}</code><br /><span class="muted">added <Age time={metadata.creationTimestamp} /></span></td>
      <td data-label="Actions">
        <button type="button" aria-label={`${cordoned ? 'Uncordon' : 'Cordon'} ${metadata.name}`} onClick={onCordon}><Glyph icon={cordoned ? CircleCheck : Ban} size={16} />{cordoned ? 'Uncordon…' : 'Cordon…'}</button>
      </td>
    </tr>
  )
}

/** State is a condition in words, with the reason where it is not True. */
function State({ condition, good, bad }: { condition: Condition | undefined; good: string; bad: string }) {
  if (!condition) return <span class="phase">Not reported</span>
  if (condition.status === 'True') return <span class="phase good">{good}</span>
  return (
    <div>
      <span class={condition.status === 'False' ? 'phase bad' : 'phase'}>{condition.status === 'False' ? bad : 'Unknown'}</span>
      <div class="muted">{[condition.reason, condition.message].filter(Boolean).join(': ')}</div>
    </div>
  )
}

const suffixes: Record<string, number> = {
  '': 1, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
}

/** quantity reads a quantity of Kubernetes; it is NaN for a text that is none. */
export function quantity(text: string): number {
  const [, number, suffix] = /^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?$/.exec(text) ?? []
  return number === undefined ? NaN : Number(number) * suffixes[suffix ?? '']!
}

/** isLimit says whether a limit is one: 0 and negative ones are none. */
function isLimit(limit: string | undefined): limit is string {
  return limit !== undefined && quantity(limit) > 0
}

const names: Record<string, string> = { workspaces: 'workspaces', logicalclusters: 'logical clusters', objects: 'objects', memory: 'memory' }

/** Load has what is used of each resource, beside the least limit there is for it. */
function Load({ shard, used }: { shard: Shard; used: Record<string, string> }) {
  const { spec, status = {} } = shard
  const applied = conditionOf(shard, 'ResourceLimitsApplied')
  const resources = Object.keys(used).sort()
  return (
    <div class="meter">
      {resources.length === 0 && <span class="muted">Not reported</span>}
      {resources.map((resource) => {
        const { soft: preferred = {}, hard = {} } = (resource === 'workspaces' && spec.resourceLimits) || {} // others have no effect
        const limits = [status.capacity?.[resource], hard[resource]].filter(isLimit)
        const limit = limits.sort((a, b) => quantity(a) - quantity(b))[0]
        const soft = [preferred[resource]].find(isLimit)
        const text = `${used[resource]}${limit ? ` of ${limit}` : ''} ${names[resource] ?? resource}${soft ? `, preferred up to ${soft}` : ''}`
        return <div key={resource}>{text}{limit && <progress aria-label={`${names[resource] ?? resource} used`} value={quantity(used[resource]!)} max={quantity(limit)} />}</div>
      })}
      {applied?.status === 'False' && <div><span class="phase bad">A limit has no effect</span> <span class="muted">{applied.message}</span></div>}
    </div>
  )
}

/** Cordon has the command that closes a shard for new workspaces, or opens it. The admin workspace writes Shards, and this page does not reach it. */
function Cordon({ shard, onEnd }: { shard: Shard; onEnd: () => void }) {
  const { name } = shard.metadata
  const cordoned = isCordoned(shard)
  return (
    <Dialog title={`${cordoned ? 'Uncordon' : 'Cordon'} ${name}`} onCancel={onEnd}>
      <p>{cordoned ? 'New workspaces may then be placed on the shard again, as far as its limits allow.' : 'No new workspaces are then placed on the shard. Those that are there stay, and are served as before.'}</p>
      <p>Shards are changed through the admin workspace, which this page does not reach. As an administrator of the installation, run:</p>
      <Command text={`kubectl kcp ${cordoned ? 'uncordon' : 'cordon'} ${name}`} />
      <p class="muted">The table shows the change as soon as it is in force.</p>
      <div class="actions"><button type="button" class="primary" onClick={onEnd}>Close</button></div>
    </Dialog>
  )
}
