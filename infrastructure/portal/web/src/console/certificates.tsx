import { Age, Command } from '../components/parts'
import type { CertificateAuthority, RootShard } from '../types'
import { conditionOf, type Host, kinds, servers } from './host'
import { Mark, ObjectLink } from './host-parts'

/** phases are those of a re-keying, in their order, with what happens meanwhile. */
const phases: [string, string][] = [
  ['TrustBoth', 'Servers learn to trust the next key, too.'],
  ['Issue', 'Certificates are issued by the next key. It ends when you confirm, with retireGeneration, that all copies of the previous ones are replaced.'],
  ['Retire', 'Servers cease to trust the previous key.'],
]

/** Certificates has the authorities of the installation, with their re-keyings, and the servers whose certificates are not issued. */
export function Certificates({ host }: { host: Host }) {
  const missing = servers.flatMap((resource) => host[resource].sorted.map((object) => ({ resource, object, condition: conditionOf(object, 'CertificatesReady') }))).filter(({ condition }) => condition?.status !== 'True')
  const known = servers.every((resource) => host[resource].state === 'current') && servers.some((resource) => host[resource].items.size > 0)
  return (
    <>
      {host.rootshards.sorted.map((root) => <Authorities key={root.metadata.name} root={root} />)}
      <h2 id="issued">Certificates of servers</h2>
      {missing.length === 0 && known && <p><Mark tone="good">All are issued</Mark> cert-manager renews them, and servers read them again.</p>}
      {missing.length > 0 && (
        <ul class="rows" aria-labelledby="issued">
          {missing.map(({ resource, object, condition }) => <li key={`${resource}/${object.metadata.name}`}><span><strong>{kinds[resource]} <ObjectLink resource={resource} name={object.metadata.name} /></strong> {condition ? condition.message : 'Not reported'}</span></li>)}
        </ul>
      )}
      <p>The console does not see single certificates: they are objects of cert-manager, and Secrets. To see when they expire:</p>
      <Command text="kubectl kcp doctor" />
    </>
  )
}

function Authorities({ root }: { root: RootShard }) {
  const { metadata: { name, namespace }, status } = root
  const cas = status?.certificates?.cas ?? []
  const rekeyed = conditionOf(root, 'CertificatesRekeyed')
  return (
    <section>
      <h2 id={`cas-${name}`}>Authorities of {name}</h2>
      {rekeyed && rekeyed.status !== 'True' && <p>{rekeyed.message}</p>}
      {cas.length === 0 && (
        <div class="panel empty">
          <p>No key has been replaced, so there is nothing to follow. Authorities are valid for ten years, and renewals keep their keys. To give one another key, raise its generation:</p>
          <Command text={`kubectl --namespace ${namespace} patch rootshards.operator.kcp.io ${name} --type merge --patch '{"spec":{"certificates":{"rekey":[{"ca":"client-ca","generation":2}]}}}'`} />
        </div>
      )}
      {cas.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-labelledby={`cas-${name}`}>
          <table class="stack">
            <thead><tr><th scope="col">Name</th><th scope="col">Phase</th><th scope="col">Generation</th><th scope="col">Expires</th><th scope="col">Waits for</th></tr></thead>
            <tbody>{cas.map((ca) => <Row key={ca.name} ca={ca} />)}</tbody>
          </table>
        </div>
      )}
    </section>
  )
}

function Row({ ca: { name, phase, generation, nextGeneration, notAfter, blockedBy = [], readySince } }: { ca: CertificateAuthority }) {
  const step = phases.findIndex(([known]) => known === phase) + 1
  return (
    <tr data-ca={name}>
      <th scope="row">{name}</th>
      <td data-label="Phase">
        <div class="meter">
          <div><Mark tone={phase === 'Stable' ? 'good' : 'progress'}>{phase}</Mark>{step > 0 && ` step ${step} of ${phases.length}`}</div>
          {step > 0 && <progress aria-label={`steps of ${name}`} value={step - 1} max={phases.length} />}
        </div>
      </td>
      <td data-label="Generation">{generation}{nextGeneration ? ` to ${nextGeneration}` : ''}</td>
      <td data-label="Expires">{notAfter ? <time dateTime={notAfter}>{notAfter.slice(0, 10)}</time> : <span class="muted">never</span>}</td>
      <td data-label="Waits for" class="text">
        {step > 0 && (
          <div>
            {phases[step - 1]![1]}
            {blockedBy.length > 0 && <ul>{blockedBy.map((text) => <li key={text}>{text}</li>)}</ul>}
            {blockedBy.length === 0 && readySince && <div class="muted">nothing blocks the next phase, since <Age time={readySince} /></div>}
          </div>
        )}
      </td>
    </tr>
  )
}
