import { Boxes } from 'lucide'
import { useEffect, useState } from 'preact/hooks'
import { Glyph } from '../components/glyph'
import { Age, Failure, Notice, Phase, plural, Skeleton, Title } from '../components/parts'
import { useStore } from '../context'
import { useObservables } from '../observable'
import { href, navigate } from '../router'

/** Instances lists what there is in the workspace, of all kinds or of one. */
export function Instances({ workspace, resource }: { workspace: string; resource: string }) {
  const store = useStore()
  useObservables(store)
  const kinds = [...store.kinds.values()].sort((a, b) => a.kind.localeCompare(b.kind))
  const shown = kinds.filter((kind) => !resource || kind.resource === resource)
  const rows = shown.flatMap((kind) => kind.feed.sorted.map((instance) => ({ kind, instance })))
  const refused = shown.filter(({ feed }) => feed.state === 'failed')
  const known = store.count(resource || undefined) !== undefined
  return (
    <>
      <Title text="Instances" />
      <Deleted />
      <div class="filters">
        <div class="above">
          <label for="kind">Kind</label>
          <select id="kind" value={resource} onChange={(event) => navigate(href(workspace, ['instances'], { kind: event.currentTarget.value }), true)}>
            <option value="">All kinds</option>
            {kinds.map((kind) => <option key={kind.resource} value={kind.resource}>{kind.kind} ({kind.feed.items.size})</option>)}
          </select>
        </div>
      </div>
      {refused.map(({ resource: name, feed }) => <Failure key={name} kind="warning" error={feed.error} what={`list ${name}`} />)}
      <p role="status" id="instance-count">{known ? plural(rows.length, 'instance') : 'Loading…'}</p>
      {!known && <Skeleton count={4} />}
      {known && rows.length === 0 && refused.length === 0 && (
        <div class="panel empty"><Glyph icon={Boxes} size={32} /><p>Nothing was created here yet. Choose something from the <a href={href(workspace)}>catalogue</a>.</p></div>
      )}
      {rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Instances">
          <table class="stack">
            <thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">Phase</th><th scope="col">Message</th><th scope="col">Created</th></tr></thead>
            <tbody>
              {rows.map(({ kind, instance: { metadata, status } }) => (
                <tr key={`${kind.resource}/${metadata.name}`} data-instance={metadata.name}>
                  <th scope="row"><a href={href(workspace, ['instances', kind.resource, metadata.name])}>{metadata.name}</a></th>
                  <td data-label="Kind">{kind.kind}</td>
                  <td data-label="Phase"><Phase phase={metadata.deletionTimestamp ? 'Deleting' : status?.phase} /></td>
                  <td class="text" data-label="Message">{status?.message}</td>
                  <td data-label="Created"><Age time={metadata.creationTimestamp} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  )
}

/** Deleted says what becomes of the instance that the user has deleted just before, until the view is left. */
function Deleted() {
  const store = useStore()
  const [deletion] = useState(store.deletion)
  useEffect(() => () => {
    store.deletion = undefined
  }, [])
  if (!deletion) return null
  const { kind, name, uid } = deletion
  const current = kind.feed.items.get(name)
  const gone = current?.metadata.uid !== uid
  return <Notice kind="info">{kind.kind} <strong>{name}</strong> {gone ? 'was deleted.' : 'is being deleted, with everything it is made of.'}</Notice>
}
