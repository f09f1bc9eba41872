import { Notice, Title } from '../components/parts'
import { usePortal, useStore } from '../context'
import { useObservables } from '../observable'
import { href, navigate } from '../router'
import type { Instance } from '../types'
import { Editor } from './editor'
import { Missing } from './template'

/** Create makes an instance of a template. */
export function Create({ workspace, name }: { workspace: string; name: string }) {
  const { api, announce } = usePortal()
  const store = useStore()
  useObservables(store)
  const template = store.template(name)
  if (!template) return <Missing name={name} />
  const { instanceCRD: { group, version, kind, resource }, displayName, schema, sampleValues } = template.spec
  const send = async (object: Instance, dryRun: boolean, signal?: AbortSignal) => {
    const path = `${store.path(version, resource)}?fieldValidation=Strict&fieldManager=portal${dryRun ? '&dryRun=All' : ''}`
    const created = await api.json<Instance>(path, { method: 'POST', body: object, ...(signal ? { signal } : {}) })
    if (dryRun) return
    store.kinds.get(resource)?.feed.apply(created)
    announce(`${kind} ${created.metadata.name} was created.`)
    navigate(href(workspace, ['instances', resource, created.metadata.name]))
  }
  return (
    <>
      <nav aria-label="Breadcrumbs">
        <ol class="breadcrumbs">
          <li><a href={href(workspace)}>Catalogue</a></li>
          <li><a href={href(workspace, ['templates', name])}>{displayName}</a></li>
          <li aria-current="page">Create</li>
        </ol>
      </nav>
      <Title text={`Create ${kind}`} />
      {!store.kinds.has(resource) && store.binding === 'bound' && <Notice kind="info">This workspace does not serve the kind {kind} yet.</Notice>}
      <Editor key={name} address={location.hash} schema={schema} named={false} what={`create ${resource}`} action={`Create ${kind}`} send={send} sample={sampleValues}
        initial={{ apiVersion: `${group}/${version}`, kind, metadata: { name: '' }, spec: {} }} onCancel={href(workspace, ['templates', name])} />
    </>
  )
}
