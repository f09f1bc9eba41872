import { APIError, TooLongError } from '../api'
import { Command, Failure, Loading, Notice, Raw } from '../components/parts'
import { eventsOf, NoAuditError, targetOf, type AuditEvent } from './audit'
import { Refresh, useReading } from './reading'

/** mostEvents is how many events are read, and mostBytes is more than these have. */
const mostEvents = 200
const mostBytes = 1 << 20

/** AuditView has the latest audit events of a workspace. */
export function AuditView({ path }: { path: string }) {
  const reading = useReading(path, 'audit', `?limit=${mostEvents}`, mostBytes, eventsOf)
  const { value: events, error } = reading
  return (
    <>
      <Refresh of={reading} />
      {error !== undefined && <Missing path={path} error={error} isOld={events !== undefined} />}
      {events ? <Events events={events} /> : error === undefined && <Loading count={2} />}
      <h2>More events</h2>
      <p>A shard keeps the latest events in memory. This command reads more of them, and those since a time; <code>-o json</code> has all fields:</p>
      <Command text={`kubectl kcp audit :${path} --since 1h`} />
    </>
  )
}

/** Missing says why there are no events, or nothing newer, and what to do. */
function Missing({ path, error, isOld }: { path: string; error: unknown; isOld: boolean }) {
  const status = error instanceof APIError ? error.status : undefined
  const isGone = status?.code === 404 && status.details?.kind === 'logicalclusters'
  const last = isOld && ' Below is what was read last.'
  if (error instanceof NoAuditError || error instanceof TooLongError || (status?.code === 404 && !isGone)) {
    return (
      <Notice kind="info">
        <p>The server of {path} keeps no audit events: it is set so, or older, or it is no shard, as that of a mount is. Ask who runs the installation for --workspace-audit-log-bytes.{last}</p>
        <Raw text={status?.message ?? (error as Error).message} />
      </Notice>
    )
  }
  return (
    <Failure kind="info" error={error} what={`read the audit events of ${path}`} where="">
      {status?.code === 403 && ' It takes access to the workspace, and the right to get the path /audit in it.'}
      {isGone && ` No shard has the logical cluster of ${path}.`}
      {last}
    </Failure>
  )
}

function Events({ events }: { events: AuditEvent[] }) {
  if (events.length === 0) {
    return (
      <div class="panel empty">
        <p>No event is kept. Changes, reads of Secrets, and refused requests are recorded from the start of the shard on.</p>
      </div>
    )
  }
  return (
    <>
      <h2 id="audit">Events, the newest first</h2>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby="audit">
        <table class="stack">
          <thead><tr><th scope="col">Time</th><th scope="col">User</th><th scope="col">Verb</th><th scope="col">Resource</th><th scope="col">Name</th><th scope="col">Status</th></tr></thead>
          <tbody>
            {events.map((event) => (
              <tr key={`${event.auditID}/${event.stage}`} data-audit={event.verb}>
                <th scope="row"><time dateTime={event.stageTimestamp} title={event.stageTimestamp}>{new Date(event.stageTimestamp).toLocaleString()}</time></th>
                <td data-label="User" class="text">{event.user?.username}{event.impersonatedUser && ` as ${event.impersonatedUser.username ?? ''}`}</td>
                <td data-label="Verb">{event.verb}</td>
                <td data-label="Resource" class="text"><code>{targetOf(event)}</code></td>
                <td data-label="Name" class="text">{[event.objectRef?.namespace, event.objectRef?.name].filter(Boolean).join('/')}</td>
                <td data-label="Status">{event.responseStatus?.code}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="muted">{events.length === mostEvents ? `The latest ${mostEvents} are shown. ` : ''}Reads other than of Secrets are not recorded. Events of one replica of the shard are shown, from its start on.</p>
    </>
  )
}
