import { inWorkspace } from '../api'
import { consoleName } from '../components/brand'
import { Conditions } from '../components/conditions'
import { Age, Command, Copy, Notice, Phase, Tabs, Title } from '../components/parts'
import { consoleHref } from '../router'
import type { KubeObject, LogicalCluster, Workspace } from '../types'
import { useFeed } from '../watches'
import { AuditView } from './audit-view'
import { Bindings } from './bindings'
import { Exports } from './exports'
import { Facts, Unknown } from './parts'
import { UsageView } from './usage-view'
import { childrenOf, split } from './workspaces'

/** views are the tabs: what they are called, and what they are in the address. */
const views: [string, string][] = [['Overview', ''], ['API bindings', 'bindings'], ['API exports', 'exports'], ['Usage', 'usage'], ['Audit', 'audit'], ['How to connect', 'connect']]

/** Details is what is known of a workspace: its Workspace in the one above, and its LogicalCluster, APIBindings and APIExports in itself. */
export function Details({ path, tab }: { path: string; tab: string }) {
  const { parent, name } = split(path)
  return (
    <section class="details">
      <Title text={path} product={consoleName}>{path.split(':').map((part, index) => <>{index > 0 && <>:<wbr /></>}{part}</>)}</Title>
      <Tabs label={`Views of ${path}`} tabs={views.map(([text, view]) => ({ text, target: consoleHref('workspaces', path, view), active: view === tab }))} />
      {tab === 'bindings' ? <Bindings path={path} /> : tab === 'exports' ? <Exports path={path} /> : tab === 'usage' ? <UsageView path={path} /> : tab === 'audit' ? <AuditView path={path} /> : tab === 'connect' ? <Connect path={path} /> : <Overview path={path} parent={parent} name={name} />}
    </section>
  )
}

function Overview({ path, parent, name }: { path: string; parent: string; name: string }) {
  return (
    <>
      {parent ? <InParent parent={parent} name={name} /> : <p class="muted">{path === 'root' ? 'The workspace at the top.' : path.startsWith('user:') ? 'A home workspace: there is none above it.' : 'This is the name of a logical cluster: nothing is known of a workspace above it.'}</p>}
      <Inside path={path} withFacts={!parent} />
    </>
  )
}

/** ownerOf is the user of an annotation that only administrators and the owner may read. */
function ownerOf({ metadata }: KubeObject): string {
  try {
    return (JSON.parse(metadata.annotations?.['experimental.tenancy.kcp.io/owner'] ?? '{}') as { username?: string }).username ?? ''
  } catch {
    return ''
  }
}

function InParent({ parent, name }: { parent: string; name: string }) {
  const feed = useFeed<Workspace>(childrenOf(parent), { fieldSelector: `metadata.name=${name}` })
  const workspace = feed.items.get(name)
  const unknown = <Unknown feed={feed} what={`read the workspace ${name} in ${parent}`} />
  if (!workspace) return feed.state === 'current' ? <Notice kind="warning"><p>There is no workspace {name} below {parent} (any more).</p></Notice> : unknown
  const { spec = {}, status = {}, metadata } = workspace
  const facts: [string, preact.ComponentChildren][] = [
    ['Phase', <Phase phase={metadata.deletionTimestamp ? 'Deleting' : status.phase} />],
    ['Type', spec.type && <code>{[spec.type.path, spec.type.name].filter(Boolean).join(':')}</code>],
    ['Mounted', spec.mount && <code>{spec.mount.ref.kind} {[spec.mount.ref.namespace, spec.mount.ref.name].filter(Boolean).join('/')}</code>],
    ['Logical cluster', spec.cluster && <Copy text={spec.cluster} what="the name of the logical cluster" />],
    ['Shard', metadata.annotations?.['core.kcp.io/shard'] && <code>{metadata.annotations['core.kcp.io/shard']}</code>],
    ['Region', metadata.labels?.['region']],
    ['URL', spec.URL && <Copy text={spec.URL} what="the URL" />],
    ['Owner', ownerOf(workspace)],
    ['Created', <Age time={metadata.creationTimestamp} />],
    ['Waits for initializers', status.initializers?.join(', ')],
    ['Waits for terminators', status.terminators?.join(', ')],
  ]
  return (
    <>
      {unknown}
      <div class="panel"><Facts facts={facts} /></div>
      <Conditions conditions={status.conditions ?? []} />
    </>
  )
}

/** isClosed says whether a workspace is inactive. One that is being deleted serves requests, because its content could not be removed otherwise. */
function isClosed({ metadata: { annotations, deletionTimestamp } }: KubeObject): boolean {
  return !deletionTimestamp && ['core.kcp.io/inactive', 'internal.kcp.io/inactive'].some((key) => annotations?.[key] === 'true')
}

/** Inside is the LogicalCluster, which only users who may list and watch logicalclusters in the workspace see: access to it alone is less. */
function Inside({ path, withFacts }: { path: string; withFacts: boolean }) {
  const feed = useFeed<LogicalCluster>(inWorkspace(path, 'apis', 'core.kcp.io', 'v1alpha1', 'logicalclusters'))
  const cluster = feed.items.get('cluster')
  const unknown = feed.state === 'current' && !cluster
    ? <Notice kind="warning"><p>There is no LogicalCluster in {path} (any more).</p></Notice>
    : <Unknown feed={feed} what={`read the logical cluster of ${path}`} />
  if (!cluster) return <><h2>Inside the workspace</h2>{unknown}</>
  const { spec = {}, status = {}, metadata } = cluster
  return (
    <>
      <h2>Inside the workspace</h2>
      {unknown}
      <div class="panel">
        <Facts facts={[
          ['Phase inside', <Phase phase={metadata.deletionTimestamp ? 'Deleting' : status.phase} />],
          ['Created by', spec.createdBy?.username],
          ['URL inside', withFacts && status.URL && <Copy text={status.URL} what="the URL" />],
          ['Limits of workspaces', status.conditions?.find(({ type }) => type === 'WorkspacesWithinLimits')?.message],
          ['Closed', isClosed(cluster) && 'closed: only its LogicalCluster can be read'],
          ['Created', <Age time={metadata.creationTimestamp} />],
        ]} />
      </div>
      {withFacts && <Conditions conditions={status.conditions ?? []} />}
    </>
  )
}

/** Connect has commands, which need no right beyond those of their user. */
function Connect({ path }: { path: string }) {
  const { parent, name } = split(path)
  return (
    <>
      <h2>Go to the workspace</h2>
      <Command text={`kubectl ws :${path}`} />
      <h2>Write a kubeconfig for it</h2>
      <p>The current context of your kubeconfig is then that of the workspace; this writes a file of its own from it:</p>
      <Command text={`kubectl ws :${path}\nkubectl config view --minify --flatten > ${path.replaceAll(':', '-')}.kubeconfig`} />
      {parent && (
        <>
          <h2>Look at the Workspace object</h2>
          <Command text={`kubectl ws :${parent}\nkubectl get workspace ${name} --output yaml`} />
        </>
      )}
      <h2>Find what is wrong</h2>
      <Command text={`kubectl ws :${path}\nkubectl describe logicalcluster cluster`} />
    </>
  )
}
