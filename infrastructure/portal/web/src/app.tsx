import { type IconNode, Activity, Boxes, FolderTree, LayoutGrid, LogOut, Server, ShieldCheck, UserRound, WifiOff } from 'lucide'
import { useEffect, useState } from 'preact/hooks'
import { consoleName, Logo, productName } from './components/brand'
import { Glyph } from './components/glyph'
import { Loading, Title } from './components/parts'
import { InstallationPage } from './console/installation'
import { ShardsPage } from './console/shards'
import { WorkspacesPage } from './console/workspaces'
import { PortalContext, StoreContext, usePortal, useStore, type Portal } from './context'
import { useObservables } from './observable'
import { consoleHref, href, type Route, signInAt, useRoute } from './router'
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
  const inside = session.signedIn || session.expired
  const store = useWorkspace(portal, inside ? route.workspace : '')
  useEffect(() => store?.focus('resource' in route ? route.resource : ''), [store, route.workspace, 'resource' in route ? route.resource : ''])
  return (
    <PortalContext.Provider value={portal}>
      <StoreContext.Provider value={store}>
        <a class="skip" href="#main" onClick={(event) => {
          event.preventDefault()
          document.getElementById('main')?.focus()
        }}>Skip to the content</a>
        <div class={inside ? 'shell' : 'shell outside'}>
          <Header route={route} />
          <div class="content">
            <Connectivity />
            <main id="main" tabIndex={-1}>
              {inside ? <View route={route} /> : <SignIn workspace={signInAt(route)} problem={problem} />}
            </main>
            <footer><a href="assets/licences.txt" target="_blank" rel="noreferrer">Licences</a></footer>
          </div>
        </div>
        {session.expired && <SignInAgain workspace={signInAt(route)} />}
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

function isOfConsole(route: Route): route is Route & { view: 'tree' | 'shards' | 'installation' } {
  return ['tree', 'shards', 'installation'].includes(route.view)
}

function View({ route }: { route: Route }) {
  const { config } = usePortal()
  const store = useStore()
  useObservables(store)
  const { workspace } = route
  if (route.view === 'workspaces') return <Workspaces key={workspace} workspace={workspace} />
  if (config.console && route.view === 'tree') return <WorkspacesPage path={route.path} tab={route.tab} />
  if (config.console && route.view === 'shards') return <ShardsPage />
  if (config.console && route.view === 'installation') return <InstallationPage tab={route.tab} resource={route.resource} name={route.name} />
  if (route.view === 'unknown' || isOfConsole(route)) return <><Title text="There is no such page" /><p><a href={href(workspace)}>Back</a></p></>
  switch (store?.binding) {
    case 'unbound':
      return <Unbound />
    case 'forbidden':
    case 'unreachable':
      return <Inaccessible />
    case 'bound':
      break
    default:
      return <Loading />
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
      return <InstanceView key={`${route.resource}/${route.name}`} workspace={workspace} resource={route.resource} name={route.name} tab={route.tab} />
    case 'edit':
      return <Edit key={`${route.resource}/${route.name}`} workspace={workspace} resource={route.resource} name={route.name} />
  }
}

function Header({ route }: { route: Route }) {
  const { view, workspace } = route
  const { session, drafts, config } = usePortal()
  const store = useStore()
  useObservables(store)
  const inConsole = config.console && isOfConsole(route)
  const count = store?.binding === 'bound' ? store.count() : undefined
  return (
    <header>
      {/* The page to sign in has it itself. */}
      {(session.signedIn || session.expired) && <span class="brand"><Logo /> {inConsole ? consoleName : productName}</span>}
      {session.signedIn && workspace && (
        <>
          <a class="workspace" href={href(workspace, ['workspaces'])} aria-label={`Workspace ${workspace}, choose another`}><Glyph icon={FolderTree} size={16} />{workspace}</a>
          <nav aria-label="Workspace">
            <NavLink target={href(workspace)} icon={LayoutGrid} active={['catalogue', 'template', 'new'].includes(view)}>Catalogue</NavLink>
            <NavLink target={href(workspace, ['instances'])} icon={Boxes} active={['instances', 'instance', 'edit'].includes(view)}>
              Instances{count !== undefined && <>{' '}<span class="count" id="total">{count}</span></>}
            </NavLink>
          </nav>
        </>
      )}
      {session.signedIn && inConsole && (
        <nav aria-label="Console">
          <NavLink target={consoleHref('workspaces')} icon={FolderTree} active={view === 'tree'}>Workspaces</NavLink>
          <NavLink target={consoleHref('shards')} icon={Server} active={view === 'shards'}>Shards</NavLink>
          <NavLink target={consoleHref('installation')} icon={Activity} active={view === 'installation'}>Installation</NavLink>
        </nav>
      )}
      <div class="end">
        {session.signedIn && config.console && (
          <a class="button quiet" href={inConsole ? href(signInAt(route)) : consoleHref('workspaces', workspace)}><Glyph icon={inConsole ? LayoutGrid : ShieldCheck} size={16} />{inConsole ? 'Infrastructure' : 'Console'}</a>
        )}
        <ThemeSwitch />
        {session.signedIn && <span class="user" title="Signed in as"><Glyph icon={UserRound} size={16} /><span>{session.user}</span></span>}
        {session.signedIn && <button type="button" class="quiet" onClick={() => {
          drafts.clear()
          session.signOut()
        }}><Glyph icon={LogOut} size={16} />Sign out</button>}
      </div>
    </header>
  )
}

function NavLink({ target, icon, active, children }: { target: string; icon: IconNode; active: boolean; children: preact.ComponentChildren }) {
  return <a href={target} {...(active ? { 'aria-current': 'page' } : {})}><Glyph icon={icon} /><span>{children}</span></a>
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
  const { watches } = usePortal()
  const store = useStore()
  useObservables(store, watches)
  const text = !navigator.onLine ? 'Offline. You see what was there last.' : store?.reconnecting || watches.reconnecting ? 'Connection lost, reconnecting. You see what was there last.' : ''
  return <div role="status" id="connectivity" class={text ? 'banner' : ''}>{text && <Glyph icon={WifiOff} />}{text}</div>
}
