import { Search } from 'lucide'
import { useEffect, useState } from 'preact/hooks'
import { inWorkspace, isWorkspace } from '../api'
import { consoleName } from '../components/brand'
import { Glyph } from '../components/glyph'
import { Failure, Title } from '../components/parts'
import { pageSize } from '../feed'
import { consoleHref, deepest, isShallow, navigate } from '../router'
import type { Workspace } from '../types'
import { useFeed } from '../watches'
import { Details } from './details'
import { Tree } from './tree'

/** childrenOf is the URL path of the workspaces below another. */
export function childrenOf(parent: string): string {
  return inWorkspace(parent, 'apis', 'tenancy.kcp.io', 'v1alpha1', 'workspaces')
}

/** split divides the path of a workspace into that of its parent, which is empty for root, a home workspace and the name of a logical cluster, and its name. */
export function split(path: string): { parent: string; name: string } {
  if (/^user:[^:]*$/.test(path)) return { parent: '', name: path } // a home workspace, or the beginning of its path
  const colon = path.lastIndexOf(':')
  return { parent: path.slice(0, Math.max(colon, 0)), name: path.slice(colon + 1) }
}

/** WorkspacesPage has the tree of workspaces, and what is known of one. */
export function WorkspacesPage({ path, tab }: { path: string; tab: string }) {
  return (
    <>
      {!path && <Title text="Workspaces" product={consoleName} />}
      {!path && <p class="muted">All workspaces of the installation that you may see, from root downwards. Home workspaces are outside it: open them by their path, user: and the name of the user, or by the name of their logical cluster.</p>}
      <PathSearch />
      <div class={path ? 'split' : ''}>
        <div class="panel tree-pane"><Tree selected={path} /></div>
        {path && <Details key={path} path={path} tab={tab} />}
      </div>
    </>
  )
}

/** PathSearch opens a workspace by its path, and finds the rest of a path of which the beginning is typed. */
function PathSearch() {
  const [text, setText] = useState('')
  const [parent, setParent] = useState('')
  const [error, setError] = useState('')
  const typed = text.trim()
  useEffect(() => {
    const above = split(typed).parent
    const timer = setTimeout(() => setParent(isWorkspace(above) ? above : ''), 250)
    return () => clearTimeout(timer)
  }, [typed])
  const open = (path: string) => {
    setText('')
    setError('')
    navigate(consoleHref('workspaces', path))
  }
  return (
    <form role="search" noValidate onSubmit={(event) => {
      event.preventDefault()
      if (isWorkspace(typed) && isShallow(typed)) open(typed)
      else if (isWorkspace(typed)) setError(`A path has at most ${deepest} names.`)
      else setError('A path is made of names with colons between them, such as root:team:project.')
    }}>
      <div class={`field${error ? ' invalid' : ''}`}>
        <div class="above">
          <label for="path">Search by path</label>
          <div class="control">
            <input id="path" type="text" autocomplete="off" autocapitalize="none" spellcheck={false} placeholder="root:team:project" value={text} aria-describedby={error ? 'path-hint path-error' : 'path-hint'} aria-invalid={error !== ''}
              onInput={(event) => {
                setText(event.currentTarget.value)
                setError('')
              }} />
            <button type="submit"><Glyph icon={Search} size={16} />Open</button>
          </div>
        </div>
        <p class="hint" id="path-hint">Type root: and the beginning of a name. A whole path, or the name of a logical cluster, is opened with Enter.</p>
        {error && <p class="error" id="path-error" role="alert">{error}</p>}
      </div>
      {parent && typed.startsWith(`${parent}:`) && <Matches key={parent} parent={parent} prefix={split(typed).name} onOpen={open} />}
    </form>
  )
}

const mostMatches = 20

function Matches({ parent, prefix, onOpen }: { parent: string; prefix: string; onOpen: (path: string) => void }) {
  const children = useFeed<Workspace>(childrenOf(parent))
  if (children.state === 'failed') return <Failure kind="info" error={children.error} what={`list the workspaces below ${parent}`} where=""> You can still open one by its whole path.</Failure>
  const found = children.sorted.filter(({ metadata }) => metadata.name.startsWith(prefix))
  const limits = [
    found.length > mostMatches ? `the first ${mostMatches} are shown` : '',
    children.complete ? '' : `only the first ${children.items.size} below ${parent} were searched; a whole path opens any of them`,
  ].filter(Boolean).join('; ')
  return (
    <>
      <p role="status" id="path-matches">{children.state === 'loading' ? 'Searching…' : `${found.length} found below ${parent}${limits && `: ${limits}`}.`}</p>
      {children.hasMore && <button type="button" onClick={() => children.more()}>Search the next {pageSize}</button>}
      <ul class="rows">
        {found.slice(0, mostMatches).map(({ metadata: { name } }) => (
          <li key={name}><a href={consoleHref('workspaces', `${parent}:${name}`)} onClick={(event) => {
            if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return // to a tab or window of its own
            event.preventDefault()
            onOpen(`${parent}:${name}`)
          }}>{parent}:{name}</a></li>
        ))}
      </ul>
    </>
  )
}
