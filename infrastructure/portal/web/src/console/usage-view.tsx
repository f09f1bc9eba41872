import { APIError, TooLongError } from '../api'
import { Command, Failure, Loading, Notice, Raw } from '../components/parts'
import { Facts } from './parts'
import { Refresh, useReading } from './reading'
import { classes, count, duration, NoUsageError, size, usageOf, type Usage } from './usage'

/** mostBytes is far more than the usage of the months that a shard keeps. Other servers, such as those of mounts, have all their metrics there. */
const mostBytes = 256 << 10

/** UsageView has what a workspace uses in this month. A shard counts what is stored when it is asked, so that the page asks only when its user does. */
export function UsageView({ path }: { path: string }) {
  const reading = useReading(path, 'metrics', '', mostBytes, usageOf)
  const { value: usage, error } = reading
  return (
    <>
      <Refresh of={reading} />
      {error !== undefined && <Missing path={path} error={error} isOld={usage !== undefined} />}
      {usage ? <Month usage={usage} /> : error === undefined && <Loading count={2} />}
      <h2>Other months, and workspaces below</h2>
      <p>Shards keep the usage of 13 months. This command prints that of a month, of the workspace and of all below it; <code>--sum</code> adds them up, and <code>-o csv</code> is for the accounting:</p>
      <Command text={`kubectl kcp usage :${path} --month ${usage?.month ?? new Date().toISOString().slice(0, 7)}`} />
    </>
  )
}

/** Missing says why there is no usage, or nothing newer, and what to do. */
function Missing({ path, error, isOld }: { path: string; error: unknown; isOld: boolean }) {
  const status = error instanceof APIError ? error.status : undefined
  const isGone = status?.code === 404 && status.details?.kind === 'logicalclusters'
  const last = isOld && ' Below is what was read last.'
  if (error instanceof NoUsageError || error instanceof TooLongError || status?.code === 501 || (status?.code === 404 && !isGone)) {
    return (
      <Notice kind="info">
        <p>The server of {path} does not count usage: it is older, or it is no shard, as that of a mount is. Ask who runs the installation to upgrade its shards.{last}</p>
        <Raw text={status?.message ?? (error as Error).message} />
      </Notice>
    )
  }
  return (
    <Failure kind="info" error={error} what={`read the usage of ${path}`} where="">
      {status?.code === 403 && ' It takes access to the workspace, and the right to get the path /metrics in it.'}
      {isGone && ` No shard has the logical cluster of ${path}.`}
      {last}
    </Failure>
  )
}

function Month({ usage: { month, requests, watchSeconds, receivedBytes, sentBytes, stored } }: { usage: Usage }) {
  const all = Object.values(requests).reduce((total, value) => total + value, 0)
  return (
    <>
      <div class="panel" data-usage={month}>
        <Facts facts={[
          ['Month', `${month}, in UTC`],
          ['Requests', count(all)],
          ['Watches', duration(watchSeconds)],
          ['Received', size(receivedBytes)],
          ['Sent', size(sentBytes)],
          ['Stored now', stored
            ? `${count(stored.objects)} ${stored.objects === 1 ? 'object' : 'objects'}, ${size(stored.bytes)}`
            : <span class="muted">Not counted: the shard counts one workspace at a time. Refresh in some seconds.</span>],
        ]} />
      </div>
      {all === 0 && <p class="muted">No request is counted in this month yet. Shards add what was used about once a minute.</p>}
      <h2 id="classes">Requests by class</h2>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby="classes">
        <table class="stack">
          <thead><tr><th scope="col">Class</th><th scope="col">Requests</th><th scope="col">Share</th><th scope="col">What counts</th></tr></thead>
          <tbody>
            {classes.map(([name, meaning]) => {
              const value = requests[name] ?? 0
              return (
                <tr key={name} data-class={name}>
                  <th scope="row">{name}</th>
                  <td data-label="Requests">{count(value)}</td>
                  <td data-label="Share"><div class="meter"><progress aria-label={`share of ${name}`} value={value} max={Math.max(all, 1)} /></div></td>
                  <td data-label="Counts" class="text">{meaning}</td>
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      <p class="muted">What clients of the workspace do counts, this page included. Watches have the durations of those that still run, too.</p>
    </>
  )
}
