import { Pencil, Trash2 } from 'lucide'
import { useRef, useState } from 'preact/hooks'
import { inWorkspace, isName } from '../api'
import { Conditions } from '../components/conditions'
import { Glyph } from '../components/glyph'
import { Age, Command, CopyButton, Definitions, Failure, Icon, Loading, Notice, Phase, Tabs, Title } from '../components/parts'
import { usePortal, useStore } from '../context'
import { useObservables } from '../observable'
import { href } from '../router'
import type { Instance } from '../types'
import { readable, toYAML } from '../yaml'
import { Delete } from './delete'

/** commonFields are the fields of a status that are no outputs. */
const commonFields = new Set(['phase', 'message', 'conditions', 'observedGeneration', 'connectionSecret'])

/** views are the tabs: what they are called, and what they are in the address. */
const views: [string, string][] = [['Overview', ''], ['YAML', 'yaml']]

/** InstanceView is one instance, as it is now. */
export function InstanceView({ workspace, resource, name, tab }: { workspace: string; resource: string; name: string; tab: string }) {
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
  const template = store.templateOf(resource)
  const outputs = Object.entries(status).filter(([field]) => !commonFields.has(field))
  return (
    <>
      <nav aria-label="Breadcrumbs"><ol class="breadcrumbs"><li><a href={href(workspace, ['instances'])}>Instances</a></li><li aria-current="page">{name}</li></ol></nav>
      <div class="head">
        <Icon url={template?.spec.iconURL} name={template?.spec.displayName ?? kind.kind} />
        <div>
          <Title text={`${kind.kind} ${name}`} />
          <p><Phase phase={metadata.deletionTimestamp ? 'Deleting' : status.phase} /> <span class="muted">created <Age time={metadata.creationTimestamp} /></span></p>
        </div>
        <p class="actions">
          <a class="button" href={href(workspace, ['instances', resource, name, 'edit'])}><Glyph icon={Pencil} size={16} />Edit</a>
          <button type="button" class="danger" disabled={Boolean(metadata.deletionTimestamp)} onClick={() => setDeleting(true)}><Glyph icon={Trash2} size={16} />Delete…</button>
        </p>
      </div>
      <Tabs label={`Views of ${name}`} tabs={views.map(([text, view]) => ({ text, target: href(workspace, ['instances', resource, name], { tab: view }), active: view === tab }))} />
      {tab === 'yaml' ? <YAML instance={instance} /> : (
        <>
          {status.message && <p class="description">{status.message}</p>}
          {outputs.length > 0 && <section class="panel"><h2>Outputs</h2><Definitions entries={outputs.map(([field, value]) => [field, typeof value === 'string' ? value : JSON.stringify(value)])} /></section>}
          {status.connectionSecret?.name && <Connection namespace={status.connectionSecret.namespace || 'default'} name={status.connectionSecret.name} />}
          <Conditions conditions={status.conditions ?? []} />
        </>
      )}
      {deleting && <Delete kind={kind} instance={instance} onCancel={() => setDeleting(false)} />}
    </>
  )
}

/** Gone is shown for an instance that is not there, or no longer: seen is whether it has been on this page. */
export function Gone({ resource, name, seen }: { resource: string; name: string; seen: boolean }) {
  const store = useStore()
  const kind = store.kinds.get(resource)?.kind ?? resource
  if (store.count(store.kinds.has(resource) ? resource : undefined) === undefined) return <Loading />
  return (
    <>
      <Title text={seen ? `${kind} ${name} was deleted` : 'Not there'} />
      <p>{seen ? 'It was deleted while this page was open.' : `There is no ${kind} ${name} in this workspace.`} <a href={href(store.workspace, ['instances'])}>All instances</a></p>
    </>
  )
}

/**
 * Connection names the Secret with which to connect. Its content is read only when the user asks for it, and never kept. Whoever writes the status
 * chooses the text: one that is no name gets neither a command, which a shell would read as more than a name, nor a request.
 */
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
  if (!isName(namespace) || !isName(name)) {
    return <section class="panel"><h2>How to connect</h2><Notice kind="warning"><p>The status of the instance names a Secret that cannot exist. Ask who runs the platform.</p></Notice></section>
  }
  return (
    <section class="panel">
      <h2>How to connect</h2>
      <p>
        Secret <code>{namespace}/{name}</code>{' '}
        <button type="button" aria-expanded={content !== undefined} onClick={() => (content ? setContent(undefined) : void show())}>{content ? 'Hide content' : 'Show content'}</button>
      </p>
      {error !== undefined && <Failure error={error} what={`read the secret ${namespace}/${name}`} />}
      {content && <Definitions entries={content} />}
      <p class="muted">Or in a terminal:</p>
      <Command text={`kubectl ws :${workspace}\nkubectl get secret ${name} --namespace ${namespace} --output yaml`} />
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
  return (
    <section>
      <h2 id="yaml-title">The object as YAML</h2>
      <p><CopyButton text={text} what="YAML">Copy</CopyButton></p>
      <pre class="code" id="instance-yaml" tabIndex={0} role="region" aria-labelledby="yaml-title"><code>{text}</code></pre>
    </section>
  )
}
