import { useRef, useState } from 'preact/hooks'
import { inWorkspace } from '../api'
import { Age, Copy, Failure, Phase, Title } from '../components/parts'
import { usePortal, useStore } from '../context'
import { useObservables } from '../observable'
import { href } from '../router'
import type { Condition, Instance } from '../types'
import { readable, toYAML } from '../yaml'
import { Delete } from './delete'

/** commonFields are the fields of a status that are no outputs. */
const commonFields = new Set(['phase', 'message', 'conditions', 'observedGeneration', 'connectionSecret'])

/** InstanceView is one instance, as it is now. */
export function InstanceView({ workspace, resource, name }: { workspace: string; resource: string; name: string }) {
  const store = useStore()
  useObservables(store)
  const [deleting, setDeleting] = useState(false)
  const kind = store.kinds.get(resource)
  const current = kind?.feed.items.get(name)
  const seen = useRef(current)
  if (current) seen.current = current
  // Under the dialog, the page stays: the object may be gone before the answer to its deletion comes.
  const instance = current ?? (deleting ? seen.current : undefined)
  if (!kind || !instance) return <Gone resource={resource} name={name} seen={seen.current !== undefined} />
  const { metadata, status = {} } = instance
  const outputs = Object.entries(status).filter(([field]) => !commonFields.has(field))
  return (
    <>
      <nav aria-label="Breadcrumbs"><ol class="breadcrumbs"><li><a href={href(workspace, ['instances'])}>Instances</a></li><li aria-current="page">{name}</li></ol></nav>
      <Title text={`${kind.kind} ${name}`} />
      <p><Phase phase={metadata.deletionTimestamp ? 'Deleting' : status.phase} /> <span class="muted">created <Age time={metadata.creationTimestamp} /></span></p>
      {status.message && <p class="description">{status.message}</p>}
      <p class="actions">
        <a class="button" href={href(workspace, ['instances', resource, name, 'edit'])}>Edit</a>
        <button type="button" class="danger" disabled={Boolean(metadata.deletionTimestamp)} onClick={() => setDeleting(true)}>Delete…</button>
      </p>
      {outputs.length > 0 && <section><h2>Outputs</h2><Definitions entries={outputs.map(([field, value]) => [field, typeof value === 'string' ? value : JSON.stringify(value)])} /></section>}
      {status.connectionSecret?.name && <Connection namespace={status.connectionSecret.namespace ?? 'default'} name={status.connectionSecret.name} />}
      <Conditions conditions={status.conditions ?? []} />
      <YAML instance={instance} />
      {deleting && <Delete kind={kind} instance={instance} onCancel={() => setDeleting(false)} />}
    </>
  )
}

/** Gone is shown for an instance that is not there, or no longer: seen is whether it has been on this page. */
export function Gone({ resource, name, seen }: { resource: string; name: string; seen: boolean }) {
  const store = useStore()
  const kind = store.kinds.get(resource)?.kind ?? resource
  if (store.count(store.kinds.has(resource) ? resource : undefined) === undefined) return <p role="status">Loading…</p>
  return (
    <>
      <Title text={seen ? `${kind} ${name} was deleted` : 'Not there'} />
      <p>{seen ? 'It was deleted while this page was open.' : `There is no ${kind} ${name} in this workspace.`} <a href={href(store.workspace, ['instances'])}>All instances</a></p>
    </>
  )
}

function Definitions({ entries }: { entries: [string, string][] }) {
  return <dl>{entries.map(([name, value]) => <div key={name}><dt>{name}</dt><dd><Copy text={value} what={name} /></dd></div>)}</dl>
}

function Conditions({ conditions }: { conditions: Condition[] }) {
  if (conditions.length === 0) return null
  return (
    <section>
      <h2 id="conditions">Conditions</h2>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby="conditions">
        <table>
          <thead><tr><th scope="col">Type</th><th scope="col">Status</th><th scope="col">Reason</th><th scope="col">Message</th><th scope="col">Since</th></tr></thead>
          <tbody>
            {conditions.map(({ type, status, reason, message, lastTransitionTime }) => (
              <tr key={type}><th scope="row">{type}</th><td>{status}</td><td>{reason}</td><td class="text">{message}</td><td><Age time={lastTransitionTime} /></td></tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  )
}

/** Connection names the Secret with which to connect. Its content is read only when the user asks for it, and never kept. */
function Connection({ namespace, name }: { namespace: string; name: string }) {
  const { api } = usePortal()
  const { workspace } = useStore()
  const [content, setContent] = useState<[string, string][]>()
  const [error, setError] = useState<unknown>()
  const show = async () => {
    setError(undefined)
    try {
      const secret = await api.json<{ data?: Record<string, string> }>(inWorkspace(workspace, 'api', 'v1', 'namespaces', namespace, 'secrets', name))
      setContent(Object.entries(secret.data ?? {}).map(([key, value]) => [key, decode(value)]))
    } catch (reason) {
      setError(reason)
    }
  }
  return (
    <section>
      <h2>Connection</h2>
      <p>
        Secret <code>{namespace}/{name}</code>{' '}
        <button type="button" aria-expanded={content !== undefined} onClick={() => (content ? setContent(undefined) : void show())}>{content ? 'Hide content' : 'Show content'}</button>
      </p>
      {error !== undefined && <Failure error={error} what={`read the secret ${namespace}/${name}`} />}
      {content && <Definitions entries={content} />}
    </section>
  )
}

function decode(base64: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)))
  } catch {
    return base64
  }
}

function YAML({ instance }: { instance: Instance }) {
  const text = toYAML(readable(instance))
  const [copied, setCopied] = useState(false)
  return (
    <section>
      <h2 id="yaml-title">YAML</h2>
      {navigator.clipboard && (
        <p><button type="button" onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true), () => {})}>{copied ? 'Copied' : 'Copy YAML'}</button></p>
      )}
      <pre class="code" id="instance-yaml" tabIndex={0} role="region" aria-labelledby="yaml-title"><code>{text}</code></pre>
    </section>
  )
}
