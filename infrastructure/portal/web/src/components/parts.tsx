import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { explain } from '../errors'
import { productName } from './brand'

/** Title is the heading of a view. It takes the focus when the view is opened, so that keyboards and screen readers begin there. */
export function Title({ children, text }: { children?: ComponentChildren; text: string }) {
  const element = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${text} – ${productName}`
    element.current?.focus()
  }, [text])
  return <h1 tabIndex={-1} ref={element}>{children ?? text}</h1>
}

/** Notice is something that the user should know. */
export function Notice({ kind, children }: { kind: 'error' | 'warning' | 'info'; children: ComponentChildren }) {
  return <div class={`notice ${kind}`} role={kind === 'error' ? 'alert' : 'note'}>{children}</div>
}

/** Failure says what went wrong in words. what is what was tried, such as "list templates". */
export function Failure({ kind = 'error', error, what, children }: { kind?: 'error' | 'warning' | 'info'; error: unknown; what: string; children?: ComponentChildren }) {
  const { text, raw } = explain(error, what)
  return <Notice kind={kind}><p>{text}{children}</p><Raw text={raw} /></Notice>
}

/** Raw is what a server has said word for word, for who asks for help: it is closed at first. */
export function Raw({ text }: { text: string }) {
  return text ? <details class="raw"><summary>What the server says</summary><p><code>{text}</code></p></details> : null
}

/** Copy is a text in a fixed-width font with a button that copies it, where browsers allow that. */
export function Copy({ text, what }: { text: string; what: string }) {
  const [copied, setCopied] = useState(false)
  return (
    <span class="copy">
      <code>{text}</code>
      {navigator.clipboard && (
        <button type="button" class="quiet" aria-label={`Copy ${what}`}
          onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true), () => {})}>{copied ? 'Copied' : 'Copy'}</button>
      )}
    </span>
  )
}

/** Command is a command for a terminal. */
export function Command({ text }: { text: string }) {
  return <pre class="command" tabIndex={0} aria-label="Command"><code>{text}</code></pre>
}

/** Icon is that of a template, or its first letter. It is decoration: the name stands beside it. */
export function Icon({ url, name }: { url: string | undefined; name: string }) {
  const [failed, setFailed] = useState('')
  const allowed = url && (/^https:\/\//.test(url) || /^data:image\//.test(url)) && failed !== url
  if (!allowed) return <span class="icon" aria-hidden="true">{[...name][0]?.toUpperCase()}</span>
  return <img class="icon" src={url} alt="" width={40} height={40} loading="lazy" referrerpolicy="no-referrer" onError={() => setFailed(url)} />
}

const tones: Record<string, string> = {
  Ready: 'good', Provisioning: 'progress', Pending: 'progress', Deleting: 'progress', Failed: 'bad', TemplateRemoved: 'bad',
}

/** Phase is the phase of an instance, by word and colour. */
export function Phase({ phase }: { phase: string | undefined }) {
  return <span class={`phase ${tones[phase ?? 'Pending'] ?? 'progress'}`}>{phase ?? 'Pending'}</span>
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
