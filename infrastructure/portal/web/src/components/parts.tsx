import { Check, CircleAlert, CircleCheck, CircleX, Copy as CopyIcon, Info, LoaderCircle, TriangleAlert } from 'lucide'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { explain } from '../errors'
import { productName } from './brand'
import { Glyph } from './glyph'

/** Title is the heading of a view. It takes the focus when the view is opened, so that keyboards and screen readers begin there. */
export function Title({ children, text, product = productName }: { children?: ComponentChildren; text: string; product?: string }) {
  const element = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${text} – ${product}`
    element.current?.focus()
  }, [text])
  return <h1 tabIndex={-1} ref={element}>{children ?? text}</h1>
}

/** Notice is something that the user should know. */
export function Notice({ kind, children }: { kind: 'error' | 'warning' | 'info'; children: ComponentChildren }) {
  const icon = { error: CircleAlert, warning: TriangleAlert, info: Info }[kind]
  return <div class={`notice ${kind}`} role={kind === 'error' ? 'alert' : 'note'}><Glyph icon={icon} /><div>{children}</div></div>
}

/** Failure says what went wrong in words. what is what was tried, such as "list templates"; where is left out if that says it. */
export function Failure({ kind = 'error', error, what, where, children }: { kind?: 'error' | 'warning' | 'info'; error: unknown; what: string; where?: string; children?: ComponentChildren }) {
  const { text, raw } = explain(error, what, where)
  return <Notice kind={kind}><p>{text}{children}</p><Raw text={raw} /></Notice>
}

/** Raw is what a server has said word for word, for who asks for help: it is closed at first. */
export function Raw({ text }: { text: string }) {
  return text ? <details class="raw"><summary>What the server says</summary><p><code>{text}</code></p></details> : null
}

/** CopyButton copies a text, where browsers allow that: on pages of https and of localhost. */
export function CopyButton({ text, what, children }: { text: string; what: string; children?: ComponentChildren }) {
  const [copied, setCopied] = useState(false)
  useEffect(() => {
    if (!copied) return
    const timer = setTimeout(() => setCopied(false), 4_000)
    return () => clearTimeout(timer)
  }, [copied])
  if (!navigator.clipboard) return null
  return (
    <button type="button" class={children ? '' : 'quiet icon-only'} aria-label={copied ? `Copied ${what}` : `Copy ${what}`} title={copied ? 'Copied' : 'Copy'}
      onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true), () => {})}>
      <Glyph icon={copied ? Check : CopyIcon} size={16} />{children}
    </button>
  )
}

/** Copy is a text in a fixed-width font with a button that copies it. */
export function Copy({ text, what }: { text: string; what: string }) {
  return <span class="copy"><code>{text}</code><CopyButton text={text} what={what} /></span>
}

/** Command is a command for a terminal, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return <div class="command-block"><pre class="command" tabIndex={0} aria-label="Command"><code>{text}</code></pre><CopyButton text={text} what="the command" /></div>
}

/** Definitions are names with values to copy. */
export function Definitions({ entries }: { entries: [string, string][] }) {
  return <dl>{entries.map(([name, value]) => <div key={name}><dt>{name}</dt><dd><Copy text={value} what={name} /></dd></div>)}</dl>
}

/** Skeleton stands where content will be. What is waited for is said by the status beside it. */
export function Skeleton({ count = 3 }: { count?: number }) {
  return <>{Array.from({ length: count }, (_, index) => <div key={index} class="skeleton" aria-hidden="true" />)}</>
}

/** Loading is what a view shows until it has something to show. */
export function Loading({ count = 3 }: { count?: number }) {
  return <><p role="status">Loading…</p><Skeleton count={count} /></>
}

/** Tabs are views of one object, each with an address of its own. */
export function Tabs({ label, tabs }: { label: string; tabs: { text: string; target: string; active: boolean }[] }) {
  return <nav class="tabs" aria-label={label}>{tabs.map(({ text, target, active }) => <a key={target} href={target} {...(active ? { 'aria-current': 'page' } : {})}>{text}</a>)}</nav>
}

/** Icon is that of a template, or its first letter. It is decoration: the name stands beside it. */
export function Icon({ url, name }: { url: string | undefined; name: string }) {
  const [failed, setFailed] = useState('')
  const allowed = url && (/^https:\/\//.test(url) || /^data:image\//.test(url)) && failed !== url
  if (!allowed) return <span class="icon" aria-hidden="true">{[...name][0]?.toUpperCase()}</span>
  return <img class="icon" src={url} alt="" width={40} height={40} loading="lazy" referrerpolicy="no-referrer" onError={() => setFailed(url)} />
}

const tones: Record<string, string> = {
  Ready: 'good', Bound: 'good', Completed: 'good', Provisioning: 'progress', Pending: 'progress', Deleting: 'progress', Failed: 'bad', TemplateRemoved: 'bad', Unavailable: 'bad',
}

/** Phase is the phase of an object, by word, icon and colour. */
export function Phase({ phase }: { phase: string | undefined }) {
  const tone = tones[phase ?? 'Pending'] ?? 'progress'
  const icon = { good: CircleCheck, bad: CircleX }[tone] ?? LoaderCircle
  return <span class={`phase ${tone}`}><Glyph icon={icon} size={14} />{phase ?? 'Pending'}</span>
}

const units: [Intl.RelativeTimeFormatUnit, number][] = [['day', 86_400], ['hour', 3_600], ['minute', 60], ['second', 1]]

/** Age says how long ago something was. */
export function Age({ time }: { time: string | undefined }) {
  if (!time) return null
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000)
  const [unit, size] = units.find(([, size]) => seconds >= size) ?? units[3]!
  const text = new Intl.RelativeTimeFormat('en', { numeric: 'auto' }).format(-Math.floor(seconds / size), unit)
  return <time dateTime={time} title={new Date(time).toLocaleString()}>{text}</time>
}

/** plural writes a number with its noun. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`
}
