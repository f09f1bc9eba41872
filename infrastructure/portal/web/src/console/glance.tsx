import { Age, Command, Loading, plural } from '../components/parts'
import { consoleHref } from '../router'
import type { Operated } from '../types'
import { allFindings, conditionOf, feeds, findingsOf, type Host, isTrue, kinds, lastCompleted, servers, type Tone, toneOf } from './host'
import { Findings, Health, Mark, ObjectLink } from './host-parts'

/** Glance is the installation on one screen: what is wrong, a card for each part, and all servers. */
export function Glance({ host }: { host: Host }) {
  const all = feeds(host).map(([, feed]) => feed)
  if (all.every(({ items }) => items.size === 0)) {
    if (all.some(({ state, error }) => state === 'loading' || (state === 'reconnecting' && !error))) return <Loading />
    return all.every(({ state }) => state === 'current') ? <NoInstallation /> : null
  }
  const objects = servers.flatMap((resource) => host[resource].sorted.map((object) => ({ resource, object })))
  return (
    <>
      <Findings findings={allFindings(host)} />
      <ul class="cards glance">{cardsOf(host).map((card) => <Card key={card.title} {...card} />)}</ul>
      {objects.length > 0 && <Servers objects={objects} />}
    </>
  )
}

function NoInstallation() {
  return (
    <div class="panel empty">
      <p>There is no object of the operator in the namespace that this server reads.</p>
      <p>An installation is made by the chart atoll-installation, or by a RootShard of your own:</p>
      <Command text="helm install kcp charts/atoll-installation --namespace kcp --set externalHostname=kcp.example.org" />
      <p>If there is one in another namespace, set --web-console-namespace.</p>
    </div>
  )
}

interface CardOf {
  title: string
  /** target is where there is more about it; empty if that is on this page. */
  target: string
  tone: Tone
  word: string
  text: preact.ComponentChildren
}

function Card({ title, target, tone, word, text }: CardOf) {
  return (
    <li class="card" data-card={title}>
      <h2>{target ? <a href={target}>{title}</a> : title}</h2>
      <p><Mark tone={tone}>{word}</Mark></p>
      <p class="muted">{text}</p>
    </li>
  )
}

/** cardsOf returns a card for each part of the installation that was read. */
function cardsOf(host: Host): CardOf[] {
  const cards: CardOf[] = []
  const isRead = (...resources: (keyof Host)[]) => resources.every((resource) => host[resource].state === 'current' || host[resource].items.size > 0)
  const add = (title: string, resources: (keyof Host)[], none: string) => {
    if (!isRead(...resources)) return
    const all = resources.flatMap((resource) => host[resource].sorted.map((object: Operated) => ({ resource, name: object.metadata.name, tone: toneOf(findingsOf(resource, object)) })))
    const good = all.filter(({ tone }) => tone === 'good').length
    const worst = all.find(({ tone }) => tone === 'bad') ?? all.find(({ tone }) => tone === 'progress')
    const rootless = resources.includes('rootshards') && host.rootshards.items.size === 0
    cards.push({
      title, target: worst ? pageOf(worst.resource, worst.name) : '', tone: worst?.tone ?? (rootless ? 'progress' : 'good'), word: all.length === 0 ? 'None' : `${good} of ${all.length} healthy`,
      text: worst ? `see ${worst.name}` : all.length === 0 || rootless ? none : '',
    })
  }
  add('Shards', ['rootshards', 'shards'], 'There is no RootShard.')
  add('Front proxies', ['frontproxies'], 'Clients have no way in but that of your own.')
  add('Caches', ['cacheservers'], 'The root shard embeds the cache.')
  add('Virtual workspaces', ['virtualworkspaces'], 'The shards serve them.')
  if (isRead('rootshards', 'shards', 'cacheservers')) cards.push(etcdCard(host))
  if (isRead(...servers)) cards.push(certificatesCard(host), rolloutCard(host))
  if (isRead('backups', 'backupschedules')) cards.push(backupCard(host))
  if (isRead('restoredrills')) cards.push(drillCard(host))
  return cards
}

function pageOf(resource: string, name: string): string {
  return consoleHref('installation', `${resource}/${name}`)
}

function namesOf(objects: Operated[]): string {
  return objects.map(({ metadata }) => metadata.name).join(', ')
}

function serversOf(host: Host): Operated[] {
  return servers.flatMap((resource) => host[resource].sorted)
}

/** reported are the objects of which a part is not in order, and those on which the operator has not reported: that is no good news. */
function reported(objects: Operated[], type: string): { bad: Operated[]; silent: Operated[] } {
  const statusOf = (object: Operated) => conditionOf(object, type)?.status
  return { bad: objects.filter((object) => statusOf(object) === 'False'), silent: objects.filter((object) => !['True', 'False'].includes(statusOf(object) ?? '')) }
}

function etcdCard(host: Host): CardOf {
  const run = servers.flatMap((resource) => host[resource].sorted.map((object: Operated) => ({ resource, object }))).filter(({ object }) => object.status?.etcd || conditionOf(object, 'EtcdAvailable'))
  const types = ['EtcdAvailable', 'EtcdHealthy']
  const good = run.filter(({ object }) => types.every((type) => isTrue(object, type)))
  const bad = run.find(({ object }) => types.some((type) => conditionOf(object, type)?.status === 'False'))
  const first = bad ?? run.find((one) => !good.includes(one))
  return {
    title: 'etcd', target: first ? pageOf(first.resource, first.object.metadata.name) : '', tone: bad ? 'bad' : first ? 'progress' : 'good', word: run.length === 0 ? 'None' : `${good.length} of ${run.length} healthy`,
    text: run.length === 0 ? 'The operator runs no etcd: watch your own.' : first && `${bad ? 'see' : 'Not reported:'} ${first.object.metadata.name}`,
  }
}

function certificatesCard(host: Host): CardOf {
  const { bad: missing, silent } = reported(serversOf(host), 'CertificatesReady')
  const none = serversOf(host).length === 0
  const cas = host.rootshards.sorted.flatMap(({ status }) => status?.certificates?.cas ?? [])
  const ends = host.rootshards.sorted.flatMap((object) => findingsOf('rootshards', object)).filter(({ condition }) => condition.type === 'CertificateExpires')
  const rekeyed = cas.filter(({ phase }) => phase !== 'Stable')
  const [first] = cas.flatMap(({ notAfter }) => notAfter ?? []).sort()
  return {
    title: 'Certificates', target: consoleHref('installation', '', 'certificates'), tone: missing.length + ends.length > 0 ? 'bad' : rekeyed.length + silent.length > 0 || none ? 'progress' : 'good',
    word: none ? 'None' : missing.length > 0 ? `${plural(missing.length, 'server')} without` : ends.length > 0 ? `${ends.length} to renew` : silent.length > 0 ? 'Not reported' : rekeyed.length > 0 ? 'Re-keying' : 'Issued',
    text: <>{silent.length > 0 && `Not reported: ${namesOf(silent)}. `}{rekeyed.map(({ name, phase }) => `${name}: ${phase}. `)}{first && <>The first authority ends on <time dateTime={first}>{first.slice(0, 10)}</time>.</>}</>,
  }
}

function rolloutCard(host: Host): CardOf {
  const { bad: waiting, silent } = reported(serversOf(host), 'RolledOut')
  const none = serversOf(host).length === 0
  const of = (reason: string) => waiting.map((object) => conditionOf(object, 'RolledOut')!).find((condition) => condition.reason === reason)
  const stopped = of('RolloutStopped')
  const held = stopped ?? of('RolloutPaused')
  const versions = [...new Set(serversOf(host).flatMap(({ status }) => status?.version ?? []))]
  return {
    title: 'Rollout', target: consoleHref('installation', '', 'rollouts'), tone: held ? 'bad' : waiting.length + silent.length > 0 || none ? 'progress' : 'good',
    word: none ? 'None' : stopped ? 'Stopped' : held ? 'Paused' : waiting.length > 0 ? `${plural(waiting.length, 'server')} to go` : silent.length > 0 ? 'Not reported' : 'Complete',
    text: held ? held.message : silent.length > 0 ? `Not reported: ${namesOf(silent)}` : versions.length > 0 && `version ${versions.join(', ')}`,
  }
}

function backupCard(host: Host): CardOf {
  const last = lastCompleted(host)
  const schedules = host.backupschedules.sorted.filter(({ spec }) => !spec?.suspend)
  const scheduled = schedules.length > 0
  const { bad: late } = reported(host.backupschedules.sorted, 'Current')
  const { silent } = reported(schedules, 'Current')
  return {
    title: 'Last backup', target: consoleHref('installation', '', 'backups'), tone: late.length > 0 ? 'bad' : last && scheduled && silent.length === 0 ? 'good' : 'progress',
    word: late.length > 0 ? 'Overdue' : silent.length > 0 ? 'Not reported' : last ? 'Complete' : 'None',
    text: <>{last ? <Age time={last} /> : 'What is lost now is lost for good'}{!scheduled && ', and no schedule makes backups'}</>,
  }
}

function drillCard(host: Host): CardOf {
  const drills = host.restoredrills.sorted
  const { bad: late } = reported(drills, 'Current')
  const { silent } = reported(drills.filter(({ spec }) => !spec?.suspend), 'Current')
  const [proved] = drills.filter(({ status }) => status?.lastSuccessfulTime).sort((a, b) => b.status!.lastSuccessfulTime!.localeCompare(a.status!.lastSuccessfulTime!))
  return {
    title: 'Last restore drill', target: consoleHref('installation', '', 'backups'), tone: late.length > 0 ? 'bad' : proved && silent.length === 0 ? 'good' : 'progress',
    word: late.length > 0 ? 'Failed' : silent.length > 0 ? 'Not reported' : proved ? 'Succeeded' : 'None',
    text: proved ? <>recovery in {proved.status!.recoveryTime}, data loss {proved.status!.dataLoss}, <Age time={proved.status!.lastSuccessfulTime} /></> : 'Nobody knows whether the backups can be restored.',
  }
}

function Servers({ objects }: { objects: { resource: string; object: Operated }[] }) {
  return (
    <>
      <h2 id="servers">Servers</h2>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby="servers">
        <table class="stack">
          <thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">State</th><th scope="col">Version</th><th scope="col">Message</th></tr></thead>
          <tbody>
            {objects.map(({ resource, object }) => (
              <tr key={`${resource}/${object.metadata.name}`} data-server={object.metadata.name}>
                <th scope="row"><ObjectLink resource={resource} name={object.metadata.name} /></th>
                <td data-label="Kind">{kinds[resource]}</td>
                <td data-label="State"><Health resource={resource} object={object} /></td>
                <td data-label="Version">{object.status?.version && <code>{object.status.version}</code>}</td>
                <td data-label="Message" class="text">{conditionOf(object, 'Ready')?.status !== 'True' && conditionOf(object, 'Ready')?.message}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  )
}
