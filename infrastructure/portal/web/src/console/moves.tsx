import { useEffect } from 'preact/hooks'
import { APIError, inWorkspace, isWorkspace } from '../api'
import { Age, Command, Failure, Loading, Notice, Phase, plural, Raw } from '../components/parts'
import { usePortal } from '../context'
import { rawOf } from '../errors'
import { consoleHref } from '../router'
import type { LogicalClusterMigration, MoveCondition } from '../types'
import { useFeed } from '../watches'

/** phases are those of a move that goes well, in their order, with what happens meanwhile. */
const phases: [string, string][] = [
  ['Preparing', 'The shard that has the workspace has to accept the move.'],
  ['Migrating', 'The content is copied; the workspace stays open where it is.'],
  ['OriginCleanup', 'The other shard takes over, and the first one removes its copy.'],
  ['DestinationFinalize', 'The other shard has the workspace; nothing is left on the first one.'],
]

/** mostEnded is how many moves that have ended are shown: they stay until somebody deletes them. */
const mostEnded = 20

const command = 'kubectl kcp move :root:org:team --to SHARD'

/** Moves has the moves of workspaces to other shards: LogicalClusterMigrations, of which commands, drains and the operator create those in root. */
export function Moves() {
  const { announce } = usePortal()
  const feed = useFeed<LogicalClusterMigration>(inWorkspace('root', 'apis', 'migration.kcp.io', 'v1alpha1', 'logicalclustermigrations'))
  useEffect(() => {
    feed.onChange = (before, after) => {
      if (after && (before || isRunning(after)) && phaseOf(after) !== (before && phaseOf(before))) announce(`Move ${after.metadata.name}: ${phaseOf(after)}`)
    }
  }, [feed])
  const all = [...feed.items.values()]
  const running = all.filter(isRunning).sort((a, b) => changed(b) - changed(a))
  const ended = all.filter((move) => !isRunning(move)).sort((a, b) => changed(b) - changed(a))
  const limits = [
    ended.length > mostEnded ? `the last ${mostEnded} of those that have ended are shown` : '',
    feed.complete ? '' : `only the first ${feed.items.size} by name were read`,
  ].filter(Boolean).join('; ')
  return (
    <>
      <h2 id="moves">Moves</h2>
      {feed.state === 'failed' && <Unserved error={feed.error} />}
      {feed.state === 'loading' && <Loading count={1} />}
      {all.length > 0 && (
        <>
          <p role="status" id="move-count">{plural(running.length, 'move')} running, {ended.length} ended{limits && `: ${limits}`}</p>
          {feed.hasMore && <button type="button" onClick={() => feed.more()}>Read more moves</button>}
          <div class="scroll" tabIndex={0} role="region" aria-labelledby="moves">
            <table class="stack">
              <thead><tr><th scope="col">Name</th><th scope="col">Phase</th><th scope="col">From</th><th scope="col">To</th><th scope="col">Progress</th><th scope="col">Message</th></tr></thead>
              <tbody>{[...running, ...ended.slice(0, mostEnded)].map((move) => <Row key={move.metadata.uid} move={move} />)}</tbody>
            </table>
          </div>
          <p>Moves that have ended stay until they are deleted. To follow one that runs, repeat the command that began it; to give it up:</p>
          <Command text="kubectl kcp move :root:org:team --abort" />
        </>
      )}
      {feed.state === 'current' && all.length === 0 && (
        <div class="panel empty">
          <p>No workspace is moving to another shard. As an administrator of the installation, move one:</p>
          <Command text={command} />
          <p>It needs the feature gate LogicalClusterMigration (alpha) on every shard; where it is disabled, the command says so.</p>
        </div>
      )}
    </>
  )
}

/** Unserved says why no moves are shown. A shard with the feature gate disabled serves the kind nevertheless, and refuses to create objects. */
function Unserved({ error }: { error: unknown }) {
  if (error instanceof APIError && error.status.code === 404) {
    return (
      <Notice kind="info">
        <p>The root shard does not serve moves of workspaces. To have them (alpha), start every shard with <code>--feature-gates=LogicalClusterMigration=true</code>; then this command moves one:</p>
        <Command text={command} />
        <Raw text={rawOf(error)} />
      </Notice>
    )
  }
  return (
    <Failure kind="info" error={error} what="list moves" where="">
      {' '}Moves are objects in the workspace root: an administrator of the installation can give you the right to get, list and watch logicalclustermigrations.migration.kcp.io there.
    </Failure>
  )
}

function phaseOf({ status }: LogicalClusterMigration): string {
  return status?.phase || 'Preparing'
}

function isRunning(move: LogicalClusterMigration): boolean {
  return !['Completed', 'Failed'].includes(phaseOf(move))
}

/** changed is when a move has changed last, in milliseconds. */
function changed({ metadata, status }: LogicalClusterMigration): number {
  const times = [metadata.creationTimestamp, ...(status?.conditions ?? []).map((condition) => condition.lastTransitionTime)]
  return Math.max(0, ...times.map((time) => Date.parse(time ?? '')).filter((time) => !Number.isNaN(time)))
}

/** messageOf is what a move waits for or why it has failed, as its shards say it; otherwise what its phase means. */
function messageOf(move: LogicalClusterMigration): string {
  const { spec, status: { originShard, conditions = [] } = {} } = move
  const phase = phaseOf(move)
  if (phase === 'Completed') return `The workspace is on ${spec.destinationShard}.`
  const givenUp = phase === 'Aborting' || conditions.some(({ type, status }) => type === 'Aborted' && status === 'True')
  // What a move has waited for does not count once it is given up.
  const counts = ({ type, severity }: MoveCondition) => type !== 'Ready' && (!givenUp || severity === 'Error' || type === 'Progressing')
  const rank = ({ severity = '' }: MoveCondition) => ['Error', 'Warning'].indexOf(severity) + 1 || 3
  const [worst] = conditions.filter((condition) => condition.status === 'False' && condition.message && counts(condition))
    .sort((a, b) => rank(a) - rank(b) || (a.type < b.type ? -1 : 1))
  if (worst) return worst.message!
  if (givenUp) return `The move was given up. The workspace stays ${originShard ? `on ${originShard}` : 'where it is'}, or was deleted.`
  return phases.find(([name]) => name === phase)?.[1] ?? ''
}

function Row({ move }: { move: LogicalClusterMigration }) {
  const { metadata: { name, annotations, deletionTimestamp, creationTimestamp }, spec, status = {} } = move
  const phase = phaseOf(move)
  const step = phases.findIndex(([name]) => name === phase) + 1
  const copied = plural(status.entriesCopied ?? 0, 'object')
  return (
    <tr data-move={name}>
      <th scope="row">
        {name}
        {isWorkspace(spec.logicalCluster) && <div class="muted">logical cluster <a href={consoleHref('workspaces', spec.logicalCluster)}><code>{spec.logicalCluster}</code></a></div>}
        {annotations?.['migration.kcp.io/include-children'] === 'true' && <div class="muted">with the workspaces below it</div>}
      </th>
      <td data-label="Phase"><Phase phase={phase} />{deletionTimestamp && isRunning(move) && <div class="muted">is being given up</div>}</td>
      <td data-label="From">{status.originShard || <span class="muted">not known</span>}</td>
      <td data-label="To">{spec.destinationShard}</td>
      <td data-label="Progress">
        <div class="meter">
          <div>{step > 0 && `step ${step} of ${phases.length}, `}{copied} copied</div>
          {step > 0 && <progress aria-label={`steps of ${name}`} value={step - 1} max={phases.length} />}
          <div class="muted">{isRunning(move) ? <>began <Age time={creationTimestamp} /></> : <>ended <Age time={new Date(changed(move)).toISOString()} /></>}</div>
        </div>
      </td>
      <td data-label="Message" class="text">{messageOf(move)}</td>
    </tr>
  )
}
