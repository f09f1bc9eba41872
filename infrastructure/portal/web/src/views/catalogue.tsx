import { Failure, Icon, plural, Skeleton, Title } from '../components/parts'
import { useStore } from '../context'
import { useObservables } from '../observable'
import { href, navigate } from '../router'
import type { Template } from '../types'

export function categoryOf(template: Template): string {
  return template.spec.category?.trim() || 'Other'
}

/** matches says whether every word of a search is in what people read of a template. */
function matches(template: Template, search: string): boolean {
  const { displayName, description = '', instanceCRD } = template.spec
  const text = `${displayName} ${description} ${categoryOf(template)} ${instanceCRD.kind} ${template.metadata.name}`.toLowerCase()
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word))
}

/** Catalogue has the templates as cards. What is searched for is in the address. */
export function Catalogue({ workspace, search, category }: { workspace: string; search: string; category: string }) {
  const store = useStore()
  useObservables(store)
  const all = store.templates.sorted.sort((a, b) => a.spec.displayName.localeCompare(b.spec.displayName))
  const categories = [...new Set(all.map(categoryOf))].sort((a, b) => Number(a === 'Other') - Number(b === 'Other') || a.localeCompare(b))
  const shown = all.filter((template) => matches(template, search) && (!category || categoryOf(template) === category))
  const show = (q: string, chosen: string) => navigate(href(workspace, [], { q, category: chosen }), true)
  const { state, error } = store.templates
  return (
    <>
      <Title text="Catalogue" />
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <div class="above">
          <label for="search">Search the catalogue</label>
          <input id="search" type="search" autocomplete="off" value={search} onInput={(event) => show(event.currentTarget.value, category)} />
        </div>
        <div class="chips" role="group" aria-label="Category">
          {['', ...categories].map((name) => (
            <button key={name} type="button" aria-pressed={category === name} onClick={() => show(search, name)}>{name || 'All'}</button>
          ))}
        </div>
      </form>
      {state === 'failed' && <Failure error={error} what="list templates" />}
      <p role="status" id="matches">
        {state === 'loading' ? 'Loading…' : all.length === 0 ? 'The catalogue is empty.' : shown.length === all.length ? plural(all.length, 'template') : `${shown.length} of ${plural(all.length, 'template')}`}
      </p>
      {state === 'loading' && <div class="cards"><Skeleton count={6} /></div>}
      <ul class="cards">{shown.map((template) => <Card key={template.metadata.name} template={template} workspace={workspace} />)}</ul>
    </>
  )
}

function Card({ template, workspace }: { template: Template; workspace: string }) {
  const { spec, metadata } = template
  const count = useStore().count(spec.instanceCRD.resource) ?? 0
  return (
    <li class="card" data-template={metadata.name}>
      <div class="head">
        <Icon url={spec.iconURL} name={spec.displayName} />
        <div>
          <h2><a href={href(workspace, ['templates', metadata.name])}>{spec.displayName}</a></h2>
          <p class="muted">{categoryOf(template)} · {spec.version}</p>
        </div>
      </div>
      <p class="description">{spec.description}</p>
      <p class="muted count">{count > 0 ? <a href={href(workspace, ['instances'], { kind: spec.instanceCRD.resource })}>{plural(count, 'instance')}</a> : 'No instances'}</p>
    </li>
  )
}
