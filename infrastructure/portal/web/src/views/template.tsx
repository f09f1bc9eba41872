import { Plus } from 'lucide'
import { Glyph } from '../components/glyph'
import { Icon, Loading, Notice, plural, Title } from '../components/parts'
import { useStore } from '../context'
import { useObservables } from '../observable'
import { href } from '../router'
import type { Schema } from '../types'
import { limits } from '../values'
import { toYAML } from '../yaml'
import { categoryOf } from './catalogue'

/** TemplateView is what a template offers. */
export function TemplateView({ workspace, name }: { workspace: string; name: string }) {
  const store = useStore()
  useObservables(store)
  const template = store.template(name)
  if (!template) return <Missing name={name} />
  const { spec } = template
  const { resource, kind } = spec.instanceCRD
  const served = store.kinds.has(resource)
  return (
    <>
      <nav aria-label="Breadcrumbs"><ol class="breadcrumbs"><li><a href={href(workspace)}>Catalogue</a></li><li aria-current="page">{spec.displayName}</li></ol></nav>
      <div class="head">
        <Icon url={spec.iconURL} name={spec.displayName} />
        <Title text={spec.displayName} />
      </div>
      <p class="muted">{categoryOf(template)} · version {spec.version} · kind {kind} · {plural(store.count(resource) ?? 0, 'instance')}</p>
      {spec.description && <p class="description">{spec.description}</p>}
      {served
        ? <p class="actions"><a class="button primary" href={href(workspace, ['templates', name, 'new'])}><Glyph icon={Plus} size={16} />Create {kind}</a> <a class="button" href={href(workspace, ['instances'], { kind: resource })}>Instances</a></p>
        : <Notice kind="info">This workspace does not serve the kind {kind} yet. The page looks again every few seconds.</Notice>}
      {spec.agent?.usage && <section><h2>Usage</h2><p class="description">{spec.agent.usage}</p></section>}
      {spec.agent?.prerequisites?.length ? <section><h2>What must be there before</h2><ul>{spec.agent.prerequisites.map((text) => <li key={text}>{text}</li>)}</ul></section> : null}
      <section>
        <h2 id="inputs">Inputs</h2>
        <div class="scroll" tabIndex={0} role="region" aria-labelledby="inputs"><Inputs schema={spec.schema} /></div>
      </section>
      {spec.agent?.outputs?.length ? <section><h2>Outputs</h2><ul>{spec.agent.outputs.map((text) => <li key={text}><code>{text}</code></li>)}</ul></section> : null}
      {spec.sampleValues && <section><h2 id="example">Example</h2><pre class="code" tabIndex={0} role="region" aria-labelledby="example"><code>{toYAML(spec.sampleValues)}</code></pre></section>}
    </>
  )
}

export function Missing({ name }: { name: string }) {
  const { templates, workspace } = useStore()
  if (templates.state === 'loading') return <Loading />
  return (
    <>
      <Title text="Not in the catalogue" />
      <p>The catalogue has no template {name} (any more). <a href={href(workspace)}>Back to the catalogue</a></p>
    </>
  )
}

/** inputs are the fields of a schema by their paths, those of nested objects and lists, too. */
function inputs(schema: Schema, prefix = '', depth = 0): { path: string; schema: Schema; required: boolean }[] {
  if (depth > 6) return []
  const properties = Object.entries(schema.properties ?? {}).flatMap(([name, property]) => [
    { path: prefix + name, schema: property, required: schema.required?.includes(name) ?? false },
    ...inputs(property, `${prefix}${name}.`, depth + 1),
  ])
  const items = schema.items ? inputs(schema.items, `${prefix.replace(/\.$/, '')}[].`, depth + 1) : []
  return [...properties, ...items]
}

function Inputs({ schema }: { schema: Schema }) {
  return (
    <table class="stack">
      <thead><tr><th scope="col">Field</th><th scope="col">Type</th><th scope="col">Default</th><th scope="col">Meaning</th></tr></thead>
      <tbody>
        {inputs(schema).map(({ path, schema: field, required }) => (
          <tr key={path}>
            <th scope="row"><code>{path}</code>{required && <span class="required"> required</span>}</th>
            <td data-label="Type">{field.enum ? field.enum.map((value) => JSON.stringify(value)).join(', ') : field.type}</td>
            <td data-label="Default">{field.default === undefined ? '' : JSON.stringify(field.default)}</td>
            <td class="text" data-label="Meaning">{[field.description, limits(field).join(', ')].filter(Boolean).join(' – ')}</td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}
