import { type IconNode, ChevronDown, ChevronRight, CirclePlus, Folder, Lock } from 'lucide'
import { useEffect, useState } from 'preact/hooks'
import { Glyph } from '../components/glyph'
import { Phase } from '../components/parts'
import { explain } from '../errors'
import { consoleHref, navigate } from '../router'
import type { Workspace } from '../types'
import { useFeed } from '../watches'
import { childrenOf } from './workspaces'

const root = 'root'

/** State is what all items of the tree share. */
interface State {
  selected: string
  expanded: ReadonlySet<string>
  focused: string
  toggle(path: string): void
  /** open shows a workspace, and what is below it. */
  open(path: string): void
  /** gone is called with a path that is no longer in the tree: one item has to be there for the tab key. */
  gone(path: string): void
}

/** above are the workspaces above one that has a path from root. */
function above(path: string): string[] {
  const names = path.split(':')
  return names[0] === root ? names.slice(0, -1).map((_, index) => names.slice(0, index + 1).join(':')) : []
}

/**
 * Tree has the workspaces from root downwards. What is below one is listed when it is opened, and watched while it is open. It has the keys of
 * a tree: arrows, Home, End, Enter, and the beginning of a name.
 */
export function Tree({ selected }: { selected: string }) {
  const [expanded, setExpanded] = useState<ReadonlySet<string>>(() => new Set([root, ...above(selected)]))
  const [focused, setFocused] = useState(root)
  useEffect(() => setExpanded((before) => new Set([...before, ...above(selected)])), [selected])
  const toggle = (path: string) => setExpanded((before) => {
    const after = new Set(before)
    if (!after.delete(path)) after.add(path)
    return after
  })
  const gone = (path: string) => setFocused((now) => (now === path ? root : now))
  const open = (path: string) => {
    setExpanded((before) => new Set([...before, path]))
    navigate(consoleHref('workspaces', path))
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const item = (event.target as Element).closest<HTMLElement>('[role=treeitem]')
    if (!item || event.ctrlKey || event.altKey || event.metaKey) return
    const items = [...(event.currentTarget as Element).querySelectorAll<HTMLElement>('[role=treeitem]')]
    const at = items.indexOf(item)
    const open = item.getAttribute('aria-expanded')
    const path = item.dataset['path'] ?? ''
    const key = event.key
    if (key === 'ArrowDown') items[at + 1]?.focus()
    else if (key === 'ArrowUp') items[at - 1]?.focus()
    else if (key === 'Home') items[0]?.focus()
    else if (key === 'End') items.at(-1)?.focus()
    else if (key === 'ArrowRight' && open === 'false') toggle(path)
    else if (key === 'ArrowRight' && open === 'true') items[at + 1]?.focus()
    else if (key === 'ArrowLeft' && open === 'true') toggle(path)
    else if (key === 'ArrowLeft') item.closest('[role=group]')?.parentElement?.querySelector<HTMLElement>('[role=treeitem]')?.focus()
    else if (key === 'Enter' || key === ' ') item.click()
    else if (/^[a-z0-9]$/.test(key)) [...items.slice(at + 1), ...items.slice(0, at)].find(({ dataset }) => dataset['name']?.startsWith(key))?.focus()
    else return
    event.preventDefault()
  }
  return (
    <ul class="tree" role="tree" aria-label="Workspaces" onKeyDown={onKeyDown} onFocusIn={(event) => setFocused((event.target as HTMLElement).dataset['path'] ?? root)}>
      <Item path={root} name={root} level={1} state={{ selected, expanded, focused, toggle, open, gone }} />
    </ul>
  )
}

function Item({ path, name, phase, level, state }: { path: string; name: string; phase?: string | undefined; level: number; state: State }) {
  const expanded = state.expanded.has(path)
  useEffect(() => () => state.gone(path), [])
  return (
    <li role="none">
      <div class="node" role="treeitem" aria-level={level} aria-expanded={expanded} aria-selected={state.selected === path} data-path={path} data-name={name}
        tabIndex={path === state.focused ? 0 : -1} onClick={() => state.open(path)}>
        <span class="twist" onClick={(event) => {
          event.stopPropagation()
          state.toggle(path)
        }}><Glyph icon={expanded ? ChevronDown : ChevronRight} size={16} /></span>
        <Glyph icon={Folder} size={16} />
        <span class="label">{name}</span>
        {phase && phase !== 'Ready' && <Phase phase={phase} />}
      </div>
      {expanded && <Branch parent={path} level={level + 1} state={state} />}
    </li>
  )
}

/** Note is a line that is no workspace; onClick is what it does, if anything. */
function Note({ text, icon, level, onClick }: { text: string; icon: IconNode; level: number; onClick?: () => void }) {
  return <li role="none"><div class="node note" role="treeitem" aria-level={level} tabIndex={-1} onClick={onClick}><Glyph icon={icon} size={16} /><span class="label">{text}</span></div></li>
}

/** Branch is what is below a workspace. */
function Branch({ parent, level, state }: { parent: string; level: number; state: State }) {
  const children = useFeed<Workspace>(childrenOf(parent))
  const next = state.selected.startsWith(`${parent}:`) ? state.selected.slice(parent.length + 1).split(':')[0]! : ''
  const names = [...children.items.keys()]
  // What is open is in the tree, even if the user may not list what is beside it.
  if (next && !children.items.has(next) && (children.state === 'failed' || !children.complete)) names.push(next)
  names.sort()
  return (
    <ul role="group">
      {names.map((name) => {
        const workspace = children.items.get(name)
        const phase = workspace?.metadata.deletionTimestamp ? 'Deleting' : workspace?.status?.phase
        return <Item key={name} path={`${parent}:${name}`} name={name} phase={phase} level={level} state={state} />
      })}
      {children.state === 'loading' && <Note text="Loading…" icon={Folder} level={level} />}
      {children.state === 'failed' && <Note text={explain(children.error, `list the workspaces below ${parent}`, '').text} icon={Lock} level={level} />}
      {children.state === 'current' && names.length === 0 && <Note text="No workspaces below it" icon={Folder} level={level} />}
      {children.hasMore && <Note text={`Show more than ${children.items.size}`} icon={CirclePlus} level={level} onClick={() => children.more()} />}
      {!children.complete && !children.hasMore && <Note text={`Only the first ${children.items.size} are here: search others by path`} icon={Folder} level={level} />}
    </ul>
  )
}
