import { Age, Command, plural } from '../components/parts'
import type { Backup, BackupSchedule, DrillRun, Restore, RestoreDrill } from '../types'
import { conditionOf, type Host, lastCompleted, newestFirst } from './host'
import { Health, Mark, ObjectLink } from './host-parts'

/** mostShown is how many Backups and Restores are shown, the newest first. */
const mostShown = 20

/** Backups has what would be there after a loss: backups with their age, who makes them, and whether drills prove that they can be restored. */
export function Backups({ host }: { host: Host }) {
  const { backupstores, backups, backupschedules, restores, restoredrills } = host
  const last = lastCompleted(host)
  return (
    <>
      <h2 id="backups">Backups</h2>
      {last && <p id="last-backup">The last one was complete <Age time={last} />. Writes after it began are lost if everything else is.</p>}
      {backups.state === 'current' && backups.items.size === 0 && <NoBackups stores={backupstores.items.size} />}
      {backups.items.size > 0 && <BackupTable backups={[...backups.items.values()].sort(newestFirst)} complete={backups.complete} />}
      {backupschedules.items.size > 0 && <><h2 id="schedules">Schedules</h2><Table label="schedules" heads={['Name', 'State', 'Schedule', 'Last complete', 'Next', 'Message']}>{backupschedules.sorted.map((schedule) => <ScheduleRow key={schedule.metadata.name} schedule={schedule} />)}</Table></>}
      <h2 id="drills">Restore drills</h2>
      {restoredrills.state === 'current' && restoredrills.items.size === 0 && <NoDrills />}
      {restoredrills.sorted.map((drill) => <Drill key={drill.metadata.name} drill={drill} />)}
      {backupstores.items.size > 0 && (
        <>
          <h2 id="stores">Stores</h2>
          <Table label="stores" heads={['Name', 'State', 'Bucket', 'Message']}>
            {backupstores.sorted.map((store) => (
              <tr key={store.metadata.name}>
                <th scope="row"><ObjectLink resource="backupstores" name={store.metadata.name} /></th>
                <td data-label="State"><Health resource="backupstores" object={store} /></td>
                <td data-label="Bucket" class="text"><code>{[store.spec?.endpointURL?.replace(/\/$/, ''), store.spec?.bucket, store.spec?.prefix].filter(Boolean).join('/')}</code></td>
                <td data-label="Message" class="text">{unready(store)}</td>
              </tr>
            ))}
          </Table>
        </>
      )}
      {restores.items.size > 0 && <><h2 id="restores">Restores</h2><Table label="restores" heads={['Name', 'State', 'Data of', 'Took', 'Message']}>{[...restores.items.values()].sort(newestFirst).slice(0, mostShown).map((restore) => <RestoreRow key={restore.metadata.name} restore={restore} />)}</Table></>}
    </>
  )
}

/** Table is a table with a heading of its own. */
function Table({ label, heads, children }: { label: string; heads: string[]; children: preact.ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-labelledby={label}>
      <table class="stack">
        <thead><tr>{heads.map((head) => <th key={head} scope="col">{head}</th>)}</tr></thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  )
}

function unready(object: { status?: { conditions?: { type: string; status: string; message?: string }[] } }): string | undefined {
  const ready = object.status?.conditions?.find(({ type }) => type === 'Ready')
  return ready?.status === 'True' ? undefined : ready?.message
}

function NoBackups({ stores }: { stores: number }) {
  return (
    <div class="panel empty">
      <p>There is no backup. {stores === 0 ? 'First make a BackupStore: a bucket, and the public keys to which backups are encrypted. Then' : 'To'} make one every night:</p>
      <Command text={'kubectl create -f - <<EOF\napiVersion: operator.kcp.io/v1alpha1\nkind: BackupSchedule\nmetadata: {name: nightly, namespace: kcp}\nspec: {rootShardRef: {name: root}, storeRef: {name: offsite}, schedule: "0 3 * * *", immediate: true}\nEOF'} />
    </div>
  )
}

function NoDrills() {
  return (
    <div class="panel empty">
      <p>Nobody has tried whether the backups can be restored. A RestoreDrill restores the last one beside the installation, and measures the recovery time and the data loss. Allow the operator a namespace for that (value restoreDrills.namespace of its chart), and put a private key into a Secret; then:</p>
      <Command text={'kubectl create -f - <<EOF\napiVersion: operator.kcp.io/v1alpha1\nkind: RestoreDrill\nmetadata: {name: weekly, namespace: kcp}\nspec: {rootShardRef: {name: root}, storeRef: {name: offsite}, identity: {name: age, key: key.txt}, schedule: "0 5 * * 0"}\nEOF'} />
    </div>
  )
}

function BackupTable({ backups, complete }: { backups: Backup[]; complete: boolean }) {
  const limits = [
    backups.length > mostShown ? `the newest ${mostShown} are shown` : '',
    complete ? '' : `only the first ${backups.length} by name were read`,
  ].filter(Boolean).join('; ')
  return (
    <>
      <p role="status" id="backup-count">{complete ? plural(backups.length, 'backup') : `More than ${backups.length} backups`}{limits && `: ${limits}`}</p>
      <Table label="backups" heads={['Name', 'Phase', 'Began', 'Took', 'Size', 'Contents', 'Message']}>
        {backups.slice(0, mostShown).map((backup) => {
          const { metadata: { name, creationTimestamp }, spec, status = {} } = backup
          const phase = status.phase || 'Pending'
          return (
            <tr key={name} data-backup={name}>
              <th scope="row"><ObjectLink resource="backups" name={name} />{spec?.storeRef?.name && <div class="muted">in {spec.storeRef.name}</div>}</th>
              <td data-label="Phase"><Mark tone={phase === 'Completed' ? 'good' : phase === 'Failed' ? 'bad' : 'progress'}>{phase}</Mark></td>
              <td data-label="Began"><Age time={status.startedAt ?? creationTimestamp} /></td>
              <td data-label="Took">{status.duration}</td>
              <td data-label="Size">{status.size}</td>
              <td data-label="Contents">{status.logicalClusters !== undefined && `${plural(status.logicalClusters, 'logical cluster')} on ${plural(status.shards ?? 0, 'shard')}`}</td>
              <td data-label="Message" class="text">{unready(backup)}</td>
            </tr>
          )
        })}
      </Table>
    </>
  )
}

function ScheduleRow({ schedule }: { schedule: BackupSchedule }) {
  const { metadata: { name }, spec = {}, status = {} } = schedule
  return (
    <tr data-schedule={name}>
      <th scope="row"><ObjectLink resource="backupschedules" name={name} /></th>
      <td data-label="State">{spec.suspend ? <Mark tone="progress">Suspended</Mark> : <Health resource="backupschedules" object={schedule} />}</td>
      <td data-label="Schedule"><span><code>{spec.schedule}</code> <span class="muted">{spec.timeZone ?? 'UTC'}</span></span></td>
      <td data-label="Last complete">{status.lastSuccessfulTime ? <Age time={status.lastSuccessfulTime} /> : <span class="muted">never</span>}</td>
      <td data-label="Next"><At time={status.nextScheduleTime} /></td>
      <td data-label="Message" class="text">{(['Current', 'Scheduled', 'RetentionEnforced'].map((type) => conditionOf(schedule, type)).find((condition) => condition?.status === 'False') ?? {}).message ?? unready(schedule)}</td>
    </tr>
  )
}

/** At is a time that may be yet to come. */
function At({ time }: { time: string | undefined }) {
  return time ? <time dateTime={time}>{new Date(time).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'short' })}</time> : null
}

/** Drill has the measured figures of the last drill that succeeded, and the last drills. */
function Drill({ drill }: { drill: RestoreDrill }) {
  const { metadata: { name }, spec = {}, status = {} } = drill
  const runs = [...(status.active ? [status.active] : []), ...(status.history ?? [])]
  return (
    <section class="panel" data-drill={name}>
      <h3><ObjectLink resource="restoredrills" name={name} /> {spec.suspend ? <Mark tone="progress">Suspended</Mark> : <Health resource="restoredrills" object={drill} />}</h3>
      <dl>
        <div><dt>Measured recovery time</dt><dd>{status.recoveryTime ?? 'not measured yet'}</dd></div>
        <div><dt>Measured data loss</dt><dd>{status.dataLoss ?? 'not measured yet'}</dd></div>
        <div><dt>Last success</dt><dd>{status.lastSuccessfulTime ? <Age time={status.lastSuccessfulTime} /> : 'never'}</dd></div>
        <div><dt>Schedule</dt><dd><code>{spec.schedule}</code> <span class="muted">{spec.timeZone ?? 'UTC'}</span>{status.nextScheduleTime && <>, next at <At time={status.nextScheduleTime} /></>}</dd></div>
      </dl>
      {runs.length > 0 && <Table label="drills" heads={['Backup', 'Result', 'Began', 'Recovery', 'Loss', 'Contents', 'Message']}>{runs.map((run) => <RunRow key={run.startedAt} run={run} />)}</Table>}
    </section>
  )
}

function RunRow({ run: { backup, result, startedAt, recoveryTime, dataLoss, logicalClusters, savedLogicalClusters, message } }: { run: DrillRun }) {
  return (
    <tr data-run={backup}>
      <th scope="row">{backup}</th>
      <td data-label="Result"><Mark tone={result === 'Succeeded' ? 'good' : result === 'Failed' ? 'bad' : 'progress'}>{result || 'Running'}</Mark></td>
      <td data-label="Began"><Age time={startedAt} /></td>
      <td data-label="Recovery">{recoveryTime}</td>
      <td data-label="Loss">{dataLoss}</td>
      <td data-label="Contents">{savedLogicalClusters !== undefined && `${logicalClusters ?? 0} of ${plural(savedLogicalClusters, 'logical cluster')}`}</td>
      <td data-label="Message" class="text">{message}</td>
    </tr>
  )
}

function RestoreRow({ restore }: { restore: Restore }) {
  const { metadata: { name }, status = {} } = restore
  const held = status.phase === 'Completed' && conditionOf(restore, 'Released')?.status === 'False'
  return (
    <tr data-restore={name}>
      <th scope="row"><ObjectLink resource="restores" name={name} /></th>
      <td data-label="State">{held ? <Mark tone="bad">To be released</Mark> : <Mark tone={status.phase === 'Completed' ? 'good' : status.phase === 'Failed' ? 'bad' : 'progress'}>{status.phase || 'Pending'}</Mark>}</td>
      <td data-label="Data of"><At time={status.backupTakenAt} /></td>
      <td data-label="Took">{status.duration}</td>
      <td data-label="Message" class="text">{held ? conditionOf(restore, 'Released')!.message : unready(restore)}</td>
    </tr>
  )
}
