import { useState } from 'preact/hooks'
import { APIError, inWorkspace, isWorkspace, type API } from '../api'
import { Dialog } from '../components/dialog'
import { Failure, Phase } from '../components/parts'
import { usePortal } from '../context'
import type { Feed } from '../feed'
import { consoleHref } from '../router'
import type { AcceptableClaim, APIBinding, PermissionClaim } from '../types'
import { useFeed } from '../watches'
import { Facts, resourceOf, Unknown } from './parts'

/** bindingsOf is the URL path of the APIBindings in a workspace. */
function bindingsOf(path: string, ...name: string[]): string {
  return inWorkspace(path, 'apis', 'apis.kcp.io', 'v1alpha2', 'apibindings', ...name)
}

/** keyOf tells claims apart: by resource and identity, as servers do. */
function keyOf({ group = '', resource, identityHash = '' }: PermissionClaim): string {
  return `${resource}.${group}:${identityHash}`
}

/** Answer is what a binding says to a claim of its export. */
type Answer = 'Accepted' | 'Accepted in part' | 'Waits to be applied' | 'Rejected' | 'Not answered'

function answerOf({ spec, status }: APIBinding, claim: PermissionClaim): Answer {
  const key = keyOf(claim)
  const answered = spec.permissionClaims?.find((other) => keyOf(other) === key)
  if (!answered) return 'Not answered'
  if (answered.state !== 'Accepted') return 'Rejected'
  if (missing(answered, claim).length > 0) return 'Accepted in part'
  return status?.appliedPermissionClaims?.some((other) => keyOf(other) === key) ? 'Accepted' : 'Waits to be applied'
}

/** missing are the verbs of a claim that a binding does not accept. */
function missing(answered: PermissionClaim, claim: PermissionClaim): string[] {
  return answered.verbs.includes('*') ? [] : claim.verbs.filter((verb) => !answered.verbs.includes(verb))
}

const tones: Record<Answer, string> = { Accepted: 'good', 'Accepted in part': '', 'Waits to be applied': '', Rejected: 'bad', 'Not answered': '' }

/** Bindings has the APIs that a workspace has bound, and what it says to the permission claims of their providers. */
export function Bindings({ path }: { path: string }) {
  const feed = useFeed<APIBinding>(bindingsOf(path))
  const [asked, setAsked] = useState<Question>()
  const unknown = <Unknown feed={feed} what={`list the API bindings of ${path}`} />
  if (feed.items.size === 0) {
    return feed.state !== 'current' ? unknown : (
      <div class="panel empty"><p>No API is bound here. An APIBinding brings the resources of an APIExport of a provider into the workspace: <code>kubectl kcp bind apiexport PATH:NAME</code></p></div>
    )
  }
  return (
    <>
      {unknown}
      <p class="muted">The providers of these APIs may ask for more in this workspace than the resources that they bring: those are their permission claims. A provider has what is accepted, and nothing else.</p>
      {feed.sorted.map((binding) => <Bound key={binding.metadata.name} binding={binding} onAsk={(claim, accept) => setAsked({ name: binding.metadata.name, claim, accept })} />)}
      {asked && <Confirm path={path} feed={feed} question={asked} onEnd={() => setAsked(undefined)} />}
    </>
  )
}

function Bound({ binding, onAsk }: { binding: APIBinding; onAsk: (claim: PermissionClaim, accept: boolean) => void }) {
  const { metadata, spec, status } = binding
  const { path = '', name = '' } = spec.reference.export ?? {}
  const text = [path, name].filter(Boolean).join(':')
  const wrong = status?.conditions?.filter((condition) => condition.status !== 'True') ?? []
  return (
    <section class="panel" data-binding={metadata.name} aria-labelledby={`binding-${metadata.name}`}>
      <h2 id={`binding-${metadata.name}`}>{metadata.name}</h2>
      <Facts facts={[
        ['Export', isWorkspace(path) ? <a href={consoleHref('workspaces', path, 'exports')}><code>{text}</code></a> : <code>{text}</code>],
        ['Phase', <Phase phase={metadata.deletionTimestamp ? 'Deleting' : status?.phase || 'Binding'} />],
        ['Resources', status?.boundResources?.map(resourceOf).join(', ')],
        ['Not in order', wrong.length > 0 && <ul>{wrong.map(({ type, reason, message }) => <li key={type}><strong>{type}</strong> {[reason, message].filter(Boolean).join(': ')}</li>)}</ul>],
      ]} />
      {status?.exportPermissionClaims?.length
        ? (
          <>
            <h3 id={`claims-${metadata.name}`}>Permission claims</h3>
            <ul class="rows" aria-labelledby={`claims-${metadata.name}`}>{status.exportPermissionClaims.map((claim) => <Claim key={keyOf(claim)} binding={binding} claim={claim} onAsk={(accept) => onAsk(claim, accept)} />)}</ul>
          </>
        )
        : null}
    </section>
  )
}

function Claim({ binding, claim, onAsk }: { binding: APIBinding; claim: PermissionClaim; onAsk: (accept: boolean) => void }) {
  const answer = answerOf(binding, claim)
  const answered = binding.spec.permissionClaims?.find((other) => keyOf(other) === keyOf(claim))
  const of = `the claim to ${resourceOf(claim)} of ${binding.metadata.name}`
  return (
    <li class="claim" data-claim={`${binding.metadata.name}/${resourceOf(claim)}`}>
      <div>
        <strong>{resourceOf(claim)}</strong> <span class={`phase ${tones[answer]}`}>{answer}</span>
        <div class="muted">{claim.verbs.join(', ')}</div>
        {answer === 'Accepted in part' && <div class="muted">not accepted: {missing(answered!, claim).join(', ')}</div>}
        {answered?.state === 'Accepted' && !answered.selector?.matchAll && <div class="muted">of some objects: the binding has a selector</div>}
      </div>
      <div class="actions">
        {answer !== 'Accepted' && answer !== 'Waits to be applied' && <button type="button" aria-label={`Accept ${of}`} onClick={() => onAsk(true)}>Accept…</button>}
        {answer !== 'Rejected' && <button type="button" aria-label={`Reject ${of}`} onClick={() => onAsk(false)}>Reject…</button>}
      </div>
    </li>
  )
}

/** Question is about a claim as it was shown: what is accepted is that, even if the export claims more meanwhile. */
interface Question {
  name: string
  claim: PermissionClaim
  accept: boolean
}

function Confirm({ path, feed, question: { name, claim, accept }, onEnd }: { path: string; feed: Feed<APIBinding>; question: Question; onEnd: () => void }) {
  const { api, announce } = usePortal()
  const [error, setError] = useState<unknown>()
  const [busy, setBusy] = useState(false)
  const resource = resourceOf(claim)
  const answer = async () => {
    setError(undefined)
    setBusy(true)
    try {
      feed.apply(await write(api, path, name, claim, accept, feed.items.get(name)))
      announce(`The claim to ${resource} of ${name} is ${accept ? 'accepted' : 'rejected'}.`)
      onEnd()
    } catch (reason) {
      setError(reason)
      setBusy(false)
    }
  }
  return (
    <Dialog title={`${accept ? 'Accept' : 'Reject'} the claim to ${resource}?`} onCancel={onEnd}>
      {accept
        ? <p>The provider of {name} may then <strong>{claim.verbs.includes('*') ? 'do everything' : claim.verbs.join(', ')}</strong> with {resource} in {path}: with all of them, unless the binding has a selector for this claim.</p>
        : <p>The provider of {name} then has no access to {resource} in {path} through this binding. What it does with them, such as Secrets with credentials that it writes, ends; what it has read or written already stays.</p>}
      {error !== undefined && <Failure error={error} what={`update the API binding ${name}`} where={` in ${path}`}>{error instanceof APIError && error.status.code === 403 ? ' It takes the right to get and patch apibindings.apis.kcp.io there.' : ''}</Failure>}
      <div class="actions">
        <button type="button" class={accept ? 'primary' : 'danger'} disabled={busy} onClick={() => void answer()}>{accept ? 'Accept' : 'Reject'}</button>
        <button type="button" onClick={onEnd}>Cancel</button>
      </div>
    </Dialog>
  )
}

/** attempts is how often a write is repeated that a controller, which writes the status, was faster than. */
const attempts = 5

/** write answers a claim, unless others have changed the answers of the binding since they were shown. */
async function write(api: API, path: string, name: string, claim: PermissionClaim, accept: boolean, shown: APIBinding | undefined): Promise<APIBinding> {
  for (let attempt = 1; ; attempt++) {
    const { metadata, spec } = await api.json<APIBinding>(bindingsOf(path, name))
    if (metadata.uid !== shown?.metadata.uid || JSON.stringify(spec.permissionClaims) !== JSON.stringify(shown?.spec.permissionClaims)) {
      throw new APIError({ code: 409, reason: 'Conflict', message: `the permission claims of the APIBinding ${name} are not those that were shown` })
    }
    const body = { metadata: { resourceVersion: metadata.resourceVersion }, spec: { permissionClaims: answered(spec.permissionClaims ?? [], claim, accept) } }
    try {
      return await api.json<APIBinding>(bindingsOf(path, name), { method: 'PATCH', contentType: 'application/merge-patch+json', body })
    } catch (error) {
      if (!(error instanceof APIError && error.status.code === 409) || attempt === attempts) throw error
    }
  }
}

/** answered returns claims with an answer to one. The selector of a claim cannot be changed, so that of an earlier answer stays. */
function answered(claims: AcceptableClaim[], claim: PermissionClaim, accept: boolean): AcceptableClaim[] {
  const state = accept ? 'Accepted' : 'Rejected'
  const { group = '', resource, identityHash = '', verbs, defaultSelector } = claim
  if (!claims.some((other) => keyOf(other) === keyOf(claim))) return [...claims, { group, resource, identityHash, verbs, selector: defaultSelector ?? { matchAll: true }, state }]
  return claims.map((other) => (keyOf(other) !== keyOf(claim) ? other : { ...other, state, ...(accept ? { verbs } : {}) }))
}
