import { CircleCheck, CircleX, LoaderCircle } from 'lucide'
import { APIError } from '../api'
import { Glyph } from '../components/glyph'
import { Age, Command, Failure, Notice, Raw } from '../components/parts'
import { rawOf } from '../errors'
import { consoleHref } from '../router'
import type { Operated } from '../types'
import { feeds, type Finding, findingsOf, type Host, isAbsent, kinds, stepOf, type Tone, toneOf } from './host'

/** Mark says how good something is, by word, icon and colour. */
export function Mark({ tone, children }: { tone: Tone; children: preact.ComponentChildren }) {
  const icon = { good: CircleCheck, progress: LoaderCircle, bad: CircleX }[tone]
  return <span class={`phase ${tone}`}><Glyph icon={icon} size={14} /><span>{children}</span></span>
}

const words: Record<Tone, string> = { good: 'Healthy', progress: 'In progress', bad: 'Needs you' }

/** Health is the state of an object in a word. */
export function Health({ resource, object }: { resource: string; object: Operated }) {
  const tone = toneOf(findingsOf(resource, object))
  return <Mark tone={tone}>{words[tone]}</Mark>
}

/** ObjectLink leads to the page of an object. */
export function ObjectLink({ resource, name }: { resource: string; name: string }) {
  return <a href={consoleHref('installation', `${resource}/${name}`)}>{name}</a>
}

/** Findings are what is not as it should be, with what to do about it. here leaves out whose they are. */
export function Findings({ findings, here = false }: { findings: Finding[]; here?: boolean }) {
  return (
    <ul class="findings">
      {findings.map((finding) => {
        const { tone, resource, object: { metadata }, condition: { type, reason, message, lastTransitionTime } } = finding
        return (
          <li key={`${resource}/${metadata.name}/${type}/${reason}`} data-finding={`${metadata.name}/${type}`} class={tone}>
            <p><Mark tone={tone}>{words[tone]}</Mark> {!here && <><strong>{kinds[resource]} <ObjectLink resource={resource} name={metadata.name} /></strong>{' '}</>}<span class="muted">{[type, reason].filter(Boolean).join(': ')} <Age time={lastTransitionTime} /></span></p>
            {message && <p>{message}</p>}
            <p class="muted">{stepOf(finding)}</p>
          </li>
        )
      })}
    </ul>
  )
}

const role = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: installation-viewer}
rules:
- apiGroups: [operator.kcp.io]
  resources: ["*"]
  verbs: [list, watch]`

/** Unreadable says once why kinds are not shown, or not current. only names one of them. */
export function Unreadable({ host, only }: { host: Host; only?: string }) {
  const failed = feeds(host).filter(([resource, { state, error }]) => (!only || resource === only) && (state === 'failed' || (state === 'reconnecting' && error instanceof APIError)))
  const groups = new Map<string, { error: unknown; resources: string[]; absent: boolean; refused: boolean; stale: boolean }>()
  for (const [resource, feed] of failed) {
    const { error } = feed
    const refused = error instanceof APIError && (error.status.details?.causes ?? []).some(({ reason }) => reason === 'HostCluster')
    const key = error instanceof APIError ? `${error.status.code}${refused}` : String(error)
    const group = groups.get(key) ?? { error, resources: [], absent: isAbsent(feed), refused, stale: false }
    group.resources.push(resource)
    group.stale ||= feed.items.size > 0
    groups.set(key, group)
  }
  return (
    <>
      {[...groups].map(([key, { error, resources, absent, refused, stale }]) => {
        const names = resources.map((resource) => kinds[resource]).join(', ')
        const last = stale ? ' Below is what was there last.' : ''
        if (refused) {
          return (
            <Notice key={key} kind="warning">
              <p>The cluster of the operator does not let this server read {names}.{last} Its credentials need a Role in the namespace of the installation; the value console.subjects of the chart atoll-installation makes it:</p>
              <Command text={"helm upgrade ... --set-json 'console.subjects=[{\"kind\":\"ServiceAccount\",\"namespace\":\"console\",\"name\":\"console\"}]'"} />
              <Raw text={rawOf(error)} />
            </Notice>
          )
        }
        if (absent) return <Notice key={key} kind="info"><p>The cluster of the operator does not have {names}: its operator is not installed, or older than this console.</p><Raw text={rawOf(error)} /></Notice>
        if (error instanceof APIError && error.status.code >= 500) return <Notice key={key} kind="warning"><p>{names} cannot be read now: {rawOf(error)}.{last} The console tries again by itself. If that does not help, look at --web-console-kubeconfig, and at the network between this server and the cluster of the operator.</p></Notice>
        const unauthorized = error instanceof APIError && error.status.code === 403
        return (
          <Failure key={key} kind="info" error={error} what={`list ${names}`} where="">
            {last}{unauthorized && <>{' '}The workspace root decides that: an administrator of the installation can create this role there, and bind it to you.</>}
            {unauthorized && <Command text={role} />}
          </Failure>
        )
      })}
    </>
  )
}
