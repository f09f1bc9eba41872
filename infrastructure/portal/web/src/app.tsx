import { useEffect, useRef, useState } from 'preact/hooks'
import { Logo, productName } from './components/brand'
import { Title } from './components/parts'
import { PortalContext, StoreContext, usePortal, useStore, type Portal } from './context'
import { useObservables } from './observable'
import { href, type Route, useRoute } from './router'
import { Store } from './store'
import { setTheme, type Theme, theme } from './theme'
import { Catalogue } from './views/catalogue'
import { Create } from './views/create'
import { Edit } from './views/edit'
import { InstanceView } from './views/instance'
import { Instances } from './views/instances'
import { SignIn, SignInAgain } from './views/sign-in'
import { TemplateView } from './views/template'
import { Inaccessible, Unbound, Workspaces } from './views/workspaces'

/** App is the frame around the views: it signs in, and has the store of the workspace in the address. */
export function App({ portal, problem }: { portal: Portal; problem: unknown }) {
  const { session } = portal
  const route = useRoute()
  useObservables(session)
  const store = useWorkspace(portal, session.signedIn || session.expired ? route.workspace : '')
  useEffect(() => store?.focus('resource' in route ? route.resource : ''), [store, route.workspace, 'resource' in route ? route.resource : ''])
  return (
    <PortalContext.Provider value={portal}>
      <StoreContext.Provider value={store}>
        <a class="skip" href="#main" onClick={(event) => {
          event.preventDefault()
          document.getElementById('main')?.focus()
        }}>Skip to the content</a>
        <Header route={route} />
        <Connectivity />
        <main id="main" tabIndex={-1}>
          {session.signedIn || session.expired ? <View route={route} /> : <SignIn workspace={route.workspace} problem={problem} />}
        </main>
        <footer><a href="assets/licences.txt" target="_blank" rel="noreferrer">Licences</a></footer>
        {session.expired && <SignInAgain workspace={route.workspace} />}
      </StoreContext.Provider>
    </PortalContext.Provider>
  )
}

/** useWorkspace has a store for the workspace of the address, and ends that of another. */
function useWorkspace(portal: Portal, workspace: string): Store | undefined {
  const [store, setStore] = useState<Store>()
  useEffect(() => {
    if (!workspace) return setStore(undefined)
    const opened = new Store(portal.api, portal.config, workspace)
    opened.onInstance = ({ kind }, before, after) => {
      const name = (after ?? before)!.metadata.name
      if (!after) portal.announce(`${kind} ${name} is gone.`)
      else if (before?.status?.phase !== after.status?.phase && after.status?.phase) portal.announce(`${kind} ${name}: ${after.status.phase}`)
    }
    setStore(opened)
    return () => opened.end()
  }, [workspace])
  return store?.workspace === workspace ? store : undefined
}

function View({ route }: { route: Route }) {
  const store = useStore()
  useObservables(store)
  const { workspace } = route
  if (route.view === 'workspaces') return <Workspaces key={workspace} workspace={workspace} />
  if (route.view === 'unknown') return <><Title text="There is no such page" /><p><a href={href(workspace)}>Back</a></p></>
  switch (store?.binding) {
    case 'unbound':
      return <Unbound />
    case 'forbidden':
    case 'unreachable':
      return <Inaccessible />
    case 'bound':
      break
    default:
      return <p role="status">Loading…</p>
  }
  switch (route.view) {
    case 'catalogue':
      return <Catalogue workspace={workspace} search={route.search} category={route.category} />
    case 'template':
      return <TemplateView key={route.template} workspace={workspace} name={route.template} />
    case 'new':
      return <Create key={route.template} workspace={workspace} name={route.template} />
    case 'instances':
      return <Instances workspace={workspace} resource={route.resource} />
    case 'instance':
      return <InstanceView key={`${route.resource}/${route.name}`} workspace={workspace} resource={route.resource} name={route.name} />
    case 'edit':
      return <Edit key={`${route.resource}/${route.name}`} workspace={workspace} resource={route.resource} name={route.name} />
  }
}

function Header({ route: { view, workspace } }: { route: Route }) {
  const { session, drafts } = usePortal()
  const store = useStore()
  useObservables(store)
  const count = store?.binding === 'bound' ? store.count() : undefined
  const link = (target: string, text: preact.ComponentChildren, active: boolean) => <a href={target} {...(active ? { 'aria-current': 'page' } : {})}>{text}</a>
  return (
    <header>
      {/* The page to sign in has it itself. */}
      {(session.signedIn || session.expired) && <span class="brand"><Logo /> {productName}</span>}
      {session.signedIn && workspace && (
        <nav aria-label="Workspace">
          {link(href(workspace), 'Catalogue', ['catalogue', 'template', 'new'].includes(view))}
          {link(href(workspace, ['instances']), <>Instances{count !== undefined && <span class="count" id="total">{' '}{count}</span>}</>, ['instances', 'instance', 'edit'].includes(view))}
        </nav>
      )}
      <div class="end">
        {session.signedIn && workspace && <a class="workspace" href={href(workspace, ['workspaces'])} aria-label={`Workspace ${workspace}, choose another`}>{workspace}</a>}
        <ThemeSwitch />
        {session.signedIn && <span class="user" title="Signed in as">{session.user}</span>}
        {session.signedIn && <button type="button" class="quiet" onClick={() => {
          drafts.clear()
          session.signOut()
        }}>Sign out</button>}
      </div>
    </header>
  )
}

function ThemeSwitch() {
  const [chosen, setChosen] = useState(theme())
  return (
    <span class="theme">
      <label for="theme">Theme</label>
      <select id="theme" value={chosen} onChange={(event) => {
        setChosen(event.currentTarget.value as Theme)
        setTheme(event.currentTarget.value as Theme)
      }}>
        <option value="system">System</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </span>
  )
}

/** Connectivity says when what is on the screen may be old. */
function Connectivity() {
  const store = useStore()
  useObservables(store)
  const text = !store ? '' : !navigator.onLine ? 'Offline. You see what was there last.' : store.reconnecting ? 'Connection lost, reconnecting. You see what was there last.' : ''
  return <div role="status" id="connectivity" class={text ? 'banner' : ''}>{text}</div>
}

/** LiveRegion is where screen readers find announcements. The same text twice is said twice. */
export function useAnnouncements(subscribe: (announce: (text: string) => void) => void) {
  const [texts, setTexts] = useState<{ id: number; text: string }[]>([])
  const next = useRef(0)
  useEffect(() => subscribe((text) => setTexts((before) => [...before.slice(-2), { id: next.current++, text }])), [])
  return <div class="visually-hidden" role="log" aria-live="polite" id="announcements">{texts.map(({ id, text }) => <p key={id}>{text}</p>)}</div>
}
