import { RefreshCw } from 'lucide'
import { useEffect, useState } from 'preact/hooks'
import { inWorkspace } from '../api'
import { Glyph } from '../components/glyph'
import { usePortal } from '../context'

/** Reading is what was read last: it stays on the screen while it is read again, and if that fails. */
export interface Reading<T> {
  value?: T
  at?: Date
  /** error is why there is nothing newer. */
  error?: unknown
  busy: boolean
  refresh: () => void
}

/** useReading reads a path of a workspace that has no watch: when its user opens the page, and when they ask for it. */
export function useReading<T>(workspace: string, at: string, query: string, mostBytes: number, parse: (text: string) => T): Reading<T> {
  const { watches } = usePortal()
  const [read, setRead] = useState<Pick<Reading<T>, 'value' | 'at' | 'error'>>({})
  const [attempt, setAttempt] = useState(0)
  const [busy, setBusy] = useState(true)
  useEffect(() => {
    const ended = new AbortController()
    const next = async () => {
      setBusy(true)
      try {
        const value = parse(await watches.api.text(inWorkspace(workspace, at) + query, mostBytes, { signal: ended.signal }))
        if (!ended.signal.aborted) setRead({ value, at: new Date() })
      } catch (error) {
        if (!ended.signal.aborted) setRead((before) => ({ ...before, error }))
      }
      if (!ended.signal.aborted) setBusy(false)
    }
    void next()
    return () => ended.abort()
  }, [workspace, attempt])
  return { ...read, busy, refresh: () => setAttempt(attempt + 1) }
}

/** Refresh reads again, and says when it was read last. */
export function Refresh({ of: { busy, at, refresh } }: { of: Reading<unknown> }) {
  return (
    <div class="actions">
      <button type="button" onClick={refresh}><Glyph icon={RefreshCw} size={16} />Refresh</button>
      <span class="muted" role="status">{busy ? 'Reading…' : at && `Read at ${at.toLocaleTimeString()}`}</span>
    </div>
  )
}
