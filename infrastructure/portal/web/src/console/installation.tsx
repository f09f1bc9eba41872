import { consoleName } from '../components/brand'
import { Conditions } from '../components/conditions'
import { Age, Command, Copy, Loading, Notice, plural, Tabs, Title } from '../components/parts'
import { usePortal } from '../context'
import type { Feed } from '../feed'
import { consoleHref } from '../router'
import type { Operated } from '../types'
import { Backups } from './backups'
import { Certificates } from './certificates'
import { Glance } from './glance'
import { allFindings, feedOf, feeds, findingsOf, type Host, isAbsent, kinds, type Tone, useHost } from './host'
import { Findings, Mark, Unreadable } from './host-parts'
import { Facts } from './parts'
import { Rollouts } from './rollouts'

/** views are the tabs: what they are called, and what they are in the address. */
const views: [string, string][] = [['At a glance', ''], ['Rollouts', 'rollouts'], ['Certificates', 'certificates'], ['Backups', 'backups']]

/** InstallationPage has the objects of the operator in the host cluster: whether all is well, and where it is not. */
export function InstallationPage({ tab, resource, name }: { tab: string; resource: string; name: string }) {
  const { config } = usePortal()
  if (!config.installation) return <NotConfigured />
  return <Configured tab={tab} resource={resource} name={name} />
}

function NotConfigured() {
  return (
    <>
      <Title text="Installation" product={consoleName} />
      <div class="panel empty">
        <p>This server does not read the objects of the operator: RootShard, Shards, proxies, backups and so on, in the cluster that the operator runs in.</p>
        <p>To have them here, give the server a kubeconfig that may list and watch them in the namespace of the installation, such as kcp:</p>
        <Command text="infrastructure-provider ... --web-console --web-console-namespace=kcp --web-console-kubeconfig=host.kubeconfig" />
        <p>Users see them then if they may list and watch them in the workspace root. Until then, use kubectl in that cluster:</p>
        <Command text="kubectl --namespace kcp get rootshards,shards,cacheservers,virtualworkspaces,frontproxies" />
      </div>
    </>
  )
}

function Configured({ tab, resource, name }: { tab: string; resource: string; name: string }) {
  const host = useHost()
  if (resource) return <ObjectPage host={host} resource={resource} name={name} />
  return (
    <>
      <Title text="Installation" product={consoleName} />
      <Tabs label="Views of the installation" tabs={views.map(([text, view]) => ({ text, target: consoleHref('installation', '', view), active: view === tab }))} />
      <Verdict host={host} />
      <Unreadable host={host} />
      {tab === 'rollouts' ? <Rollouts host={host} /> : tab === 'certificates' ? <Certificates host={host} /> : tab === 'backups' ? <Backups host={host} /> : <Glance host={host} />}
    </>
  )
}

/** verdictOf is the state of the installation in one sentence. What is wrong is so at once; it is good only if everything is read, and current, and there is an installation. */
function verdictOf(host: Host): { tone: Tone; text: string } | undefined {
  const all = feeds(host).map(([, feed]) => feed)
  const findings = allFindings(host)
  const namesOf = (is: (feed: Feed<Operated>) => boolean) => feeds(host).filter(([, feed]) => is(feed)).map(([resource]) => kinds[resource]).join(', ')
  const old = namesOf(({ state }) => state === 'reconnecting')
  const cut = feeds(host).filter(([, { complete }]) => !complete).map(([resource, { items }]) => `the first ${items.size} by name of ${kinds[resource]}`).join(', ')
  const within = cut && ` within ${cut}; there are more`
  const unread = all.filter((feed) => feed.state === 'failed' && !isAbsent(feed)).length
  const objects = all.reduce((sum, { items }) => sum + items.size, 0)
  const bad = findings.filter(({ tone }) => tone === 'bad').length
  if (bad > 0) return { tone: 'bad', text: `${plural(bad, 'finding')} that ${bad === 1 ? 'needs' : 'need'} you${within}` }
  if (all.some(({ state }) => state === 'loading')) return undefined
  if (old) return { tone: 'progress', text: `Not current: ${old} cannot be read now` }
  if (unread === all.length || (objects === 0 && unread === 0)) return undefined // said elsewhere
  if (findings.length > 0) return { tone: 'progress', text: `In progress: ${plural(findings.length, 'finding')} that the operator works on${within}` }
  if (unread > 0) return { tone: 'progress', text: 'Nothing is wrong with what you may read' }
  if (cut) return { tone: 'progress', text: `Nothing is wrong${within}` }
  if (host.rootshards.items.size === 0) return { tone: 'progress', text: 'There is no RootShard: the other objects are no installation' }
  return { tone: 'good', text: `Healthy, as the operator last reported: ${plural(objects, 'object')} ${objects === 1 ? 'is' : 'are'} as the spec says` }
}

function Verdict({ host }: { host: Host }) {
  const verdict = verdictOf(host)
  return (
    <>
      <p id="verdict" class="verdict" role="status">{verdict && <Mark tone={verdict.tone}>{verdict.text}</Mark>}</p>
      {verdict?.tone === 'good' && <p class="muted">Nothing here changes while the operator does not run. <code>kubectl kcp doctor</code> says whether it runs.</p>}
    </>
  )
}

/** ObjectPage has what the operator says of one object. */
function ObjectPage({ host, resource, name }: { host: Host; resource: string; name: string }) {
  const feed = feedOf(host, resource)
  const object = feed?.items.get(name)
  const kind = kinds[resource]
  return (
    <>
      <nav aria-label="Breadcrumbs"><ol class="breadcrumbs"><li><a href={consoleHref('installation')}>Installation</a></li><li>{kind ?? resource}</li></ol></nav>
      <Title text={name} product={consoleName} />
      {!kind && <Notice kind="warning"><p>{resource} is no kind of the operator that the console shows.</p></Notice>}
      {feed?.state === 'loading' && <Loading />}
      {kind && <Unreadable host={host} only={resource} />}
      {feed?.state === 'current' && !object && <Notice kind="warning"><p>There is no {kind} {name} (any more).</p></Notice>}
      {object && (
        <>
          <Findings findings={findingsOf(resource, object)} here />
          <div class="panel">
            <Facts facts={[
              ['Kind', kind],
              ['Namespace', object.metadata.namespace && <code>{object.metadata.namespace}</code>],
              ['Phase', object.status?.phase],
              ['Version', object.status?.version && <code>{object.status.version}</code>],
              ['Endpoint', object.status?.endpoint && <Copy text={object.status.endpoint} what="the endpoint" />],
              ['Created', <Age time={object.metadata.creationTimestamp} />],
            ]} />
          </div>
          <Conditions conditions={object.status?.conditions ?? []} />
          <h2>More about it</h2>
          <p>In the cluster of the operator:</p>
          <Command text={`kubectl --namespace ${object.metadata.namespace} describe ${resource}.operator.kcp.io ${name}`} />
        </>
      )}
    </>
  )
}
