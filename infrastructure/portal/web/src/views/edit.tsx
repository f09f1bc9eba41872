import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { APIError } from '../api'
import { Dialog } from '../components/dialog'
import { Title } from '../components/parts'
import { usePortal, useStore } from '../context'
import { useObservables } from '../observable'
import { href, navigate } from '../router'
import type { Instance, Schema } from '../types'
import { mergePatch, type Value } from '../values'
import { readableAnnotations, toYAML } from '../yaml'
import { Editor } from './editor'
import { Gone } from './instance'

/** editable is the part of an object that is edited. What only programs need is left out on both sides of a patch, so that it stays. */
function editable({ apiVersion, kind, metadata, spec }: Instance): Value {
  const { name, labels } = metadata
  const annotations = readableAnnotations(metadata)
  return { apiVersion, kind, metadata: { name, ...(labels ? { labels } : {}), ...(annotations ? { annotations } : {}) }, spec: spec ?? {} }
}

/** attempts bounds how often a change is sent while only the status of the object changes. */
const attempts = 5

/** Edit changes an instance. It sends what the user has changed, and only if nobody has changed the object in between. */
export function Edit({ workspace, resource, name }: { workspace: string; resource: string; name: string }) {
  const store = useStore()
  useObservables(store)
  const kind = store.kinds.get(resource)
  const current = kind?.feed.items.get(name)
  const seen = useRef(current)
  if (current) seen.current = current
  if (!kind || !current) return <Gone resource={resource} name={name} seen={seen.current !== undefined} />
  const schema: Schema = store.templateOf(resource)?.spec.schema ?? { type: 'object', 'x-kubernetes-preserve-unknown-fields': true }
  return <EditInstance key={current.metadata.uid} workspace={workspace} resource={resource} current={current} kind={kind.kind} version={kind.version} schema={schema} />
}

interface Props {
  workspace: string
  resource: string
  current: Instance
  kind: string
  version: string
  schema: Schema
}

function EditInstance({ workspace, resource, current, kind, version, schema }: Props) {
  const { api, announce, drafts } = usePortal()
  const store = useStore()
  const { name } = current.metadata
  const back = href(workspace, ['instances', resource, name])
  const address = location.hash
  // What the user began with is kept with what was typed.
  const [base, setBase] = useState<Instance>(() => (drafts.get(address) ? drafts.get<Instance>(`${address} base`) : undefined) ?? current)
  const [conflict, setConflict] = useState<{ object: Value; latest: Instance }>()
  useLayoutEffect(() => drafts.set(`${address} base`, base), [base])

  const patch = async (object: Value, from: Instance, dryRun: boolean, signal?: AbortSignal) => {
    const difference = mergePatch(editable(from), object) ?? {}
    const body = { ...difference, metadata: { ...difference.metadata, resourceVersion: from.metadata.resourceVersion } }
    const path = `${store.path(version, resource, name)}?fieldValidation=Strict&fieldManager=portal${dryRun ? '&dryRun=All' : ''}`
    return api.json<Instance>(path, { method: 'PATCH', contentType: 'application/merge-patch+json', body, ...(signal ? { signal } : {}) })
  }
  const save = async (object: Value, from: Instance) => {
    const saved = await patch(object, from, false)
    store.kinds.get(resource)?.feed.apply(saved)
    announce(`${kind} ${name} was changed.`)
    navigate(back)
  }
  const latest = () => api.json<Instance>(store.path(version, resource, name))
  const isConflict = (error: unknown) => error instanceof APIError && error.status.code === 409
  const send = async (object: Value, dryRun: boolean, signal?: AbortSignal) => {
    let from = base
    for (let attempt = 1; ; attempt++) {
      try {
        if (dryRun) await patch(object, from, true, signal)
        else await save(object, from)
        return
      } catch (error) {
        if (!isConflict(error)) throw error
        const now = await latest()
        const same = mergePatch(editable(base), editable(now)) === undefined
        if (!dryRun && !same) setConflict({ object, latest: now })
        if (attempt === attempts || (!dryRun && !same)) throw error
        // The status of an object changes without anybody's doing, several times after a change: what was sent still is what was meant.
        from = now
      }
    }
  }
  return (
    <>
      <nav aria-label="Breadcrumbs">
        <ol class="breadcrumbs">
          <li><a href={href(workspace, ['instances'])}>Instances</a></li>
          <li><a href={back}>{name}</a></li>
          <li aria-current="page">Edit</li>
        </ol>
      </nav>
      <Title text={`Edit ${kind} ${name}`} />
      <Editor key={base.metadata.resourceVersion} address={address} schema={schema} named what={`change ${resource}`} action="Save" send={send} initial={editable(base)} onCancel={back} />
      {conflict && (
        <Dialog title="Somebody else has changed this object" onCancel={() => setConflict(undefined)}>
          <p>Since you began, {name} was changed. This is what is different there:</p>
          <pre class="code" tabIndex={0}><code>{toYAML(mergePatch(editable(base), editable(conflict.latest)) ?? {})}</code></pre>
          <div class="actions">
            <button type="button" class="primary" onClick={() => {
              const rebased = applyPatch(editable(conflict.latest), mergePatch(editable(base), conflict.object))
              drafts.set(address, { object: rebased, yaml: undefined })
              setBase(conflict.latest)
              setConflict(undefined)
            }}>Put my changes on top</button>
            <button type="button" onClick={() => {
              drafts.delete(address)
              setBase(conflict.latest)
              setConflict(undefined)
            }}>Discard my changes</button>
            <button type="button" class="quiet" onClick={() => setConflict(undefined)}>Back to the form</button>
          </div>
        </Dialog>
      )}
    </>
  )
}

/** applyPatch applies a JSON merge patch. */
function applyPatch(value: Value, patch: Value): Value {
  if (patch === undefined) return value
  if (patch === null || typeof patch !== 'object' || Array.isArray(patch)) return patch
  const result: Record<string, Value> = { ...(value && typeof value === 'object' && !Array.isArray(value) ? value : {}) }
  for (const [key, part] of Object.entries(patch)) {
    if (part === null) delete result[key]
    else result[key] = applyPatch(result[key], part)
  }
  return result
}
