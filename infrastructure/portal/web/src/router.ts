import { useEffect, useState } from 'preact/hooks'
import { isName, isWorkspace } from './api'

/** Route is a view of the portal; everything that it shows is in its address, so that links can be shared. */
export type Route =
  | { view: 'workspaces'; workspace: string }
  | { view: 'catalogue'; workspace: string; search: string; category: string }
  | { view: 'template'; workspace: string; template: string }
  | { view: 'new'; workspace: string; template: string }
  | { view: 'instances'; workspace: string; resource: string }
  | { view: 'instance'; workspace: string; resource: string; name: string; tab: string }
  | { view: 'edit'; workspace: string; resource: string; name: string }
  | { view: 'tree'; workspace: ''; path: string; tab: string }
  | { view: 'shards'; workspace: '' }
  | { view: 'installation'; workspace: ''; tab: string; resource: string; name: string }
  | { view: 'unknown'; workspace: string }

/** parse reads the part of an address after #. */
export function parse(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#/, '').split('?', 2)
  const segments = path.split('/').filter(Boolean).map(decode)
  const workspace = segments[0] === 'w' && isWorkspace(segments[1] ?? '') ? segments[1]! : ''
  const unknown: Route = { view: 'unknown', workspace }
  const parameters = new URLSearchParams(query)
  if (segments.length === 0) return { view: 'workspaces', workspace: '' }
  if (segments[0] === 'console') return parseConsole(segments, parameters) ?? unknown
  if (!workspace) return unknown
  const [, , view, first, second, third] = segments
  switch (view) {
    case undefined:
      return { view: 'catalogue', workspace, search: parameters.get('q') ?? '', category: parameters.get('category') ?? '' }
    case 'workspaces':
      return { view: 'workspaces', workspace }
    case 'templates':
      if (!first) return unknown
      return second === 'new' ? { view: 'new', workspace, template: first } : { view: 'template', workspace, template: first }
    case 'instances':
      if (!first) return { view: 'instances', workspace, resource: parameters.get('kind') ?? '' }
      if (!second) return unknown
      if (third === 'edit') return { view: 'edit', workspace, resource: first, name: second }
      return { view: 'instance', workspace, resource: first, name: second, tab: parameters.get('tab') ?? '' }
    default:
      return unknown
  }
}

/** deepest is how many names a path in the console has at most: the tree lists and watches each workspace above the one in the address. */
export const deepest = 30

export function isShallow(path: string): boolean {
  return path.split(':').length <= deepest
}

/** parseConsole reads the address of a page of administrators: #/console, #/console/workspaces/root:team, #/console/shards, #/console/installation/shards/alpha. */
function parseConsole([, page = 'workspaces', path = '', ...rest]: string[], parameters: URLSearchParams): Route | undefined {
  const [name = '', ...more] = rest
  if (page === 'installation' && (path ? isName(path) && isName(name) && more.length === 0 : !name)) {
    return { view: 'installation', workspace: '', tab: parameters.get('tab') ?? '', resource: path, name }
  }
  if (rest.length > 0) return undefined
  if (page === 'shards' && !path) return { view: 'shards', workspace: '' }
  if (page === 'workspaces' && (!path || (isWorkspace(path) && isShallow(path)))) return { view: 'tree', workspace: '', path, tab: parameters.get('tab') ?? '' }
  return undefined
}

/** signInAt is the workspace of which an address is, by whose issuers a token may be; empty for none. */
export function signInAt(route: Route): string {
  return route.view === 'tree' ? route.path : route.workspace
}

/** consoleHref is the address of a page of administrators. */
export function consoleHref(page: 'workspaces' | 'shards' | 'installation', path = '', tab = ''): string {
  return `#/console/${page}${path && `/${path}`}${tab && `?tab=${encodeURIComponent(tab)}`}`
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}

/** href is the address of a view: segments are encoded, empty parameters left out. */
export function href(workspace: string, segments: string[] = [], parameters: Record<string, string> = {}): string {
  if (!workspace) return '#/'
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString()
  return `#/w/${[workspace, ...segments.map(encodeURIComponent)].join('/')}${query ? `?${query}` : ''}`
}

/** navigate goes to a view; replace leaves no entry in the history. */
export function navigate(target: string, replace = false): void {
  if (!replace) {
    location.hash = target
    return
  }
  history.replaceState(null, '', target)
  window.dispatchEvent(new Event('hashchange'))
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash)
  useEffect(() => {
    const listener = () => setHash(location.hash)
    window.addEventListener('hashchange', listener)
    return () => window.removeEventListener('hashchange', listener)
  }, [])
  return parse(hash)
}
