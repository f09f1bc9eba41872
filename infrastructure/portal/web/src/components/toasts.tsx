import { X } from 'lucide'
import { useEffect, useRef, useState } from 'preact/hooks'
import { Glyph } from './glyph'

/** shown is how long a message stays, and most how many there are at a time. */
const shown = 12_000
const most = 3

/**
 * Toasts shows messages, and has screen readers say them; the same text twice is said twice. A message stays while the pointer or the focus is
 * on one, so that nobody has to read against the clock.
 */
export function Toasts({ subscribe }: { subscribe: (announce: (text: string) => void) => void }) {
  const [messages, setMessages] = useState<{ id: number; text: string }[]>([])
  const [held, setHeld] = useState(false)
  const next = useRef(0)
  useEffect(() => subscribe((text) => setMessages((before) => [...before.slice(1 - most), { id: next.current++, text }])), [])
  const oldest = messages[0]?.id
  const remove = (id: number) => {
    setHeld(false) // the element that the pointer or the focus is on goes away without an event
    setMessages((before) => before.filter((message) => message.id !== id))
  }
  useEffect(() => {
    if (oldest === undefined || held) return
    const timer = setTimeout(() => remove(oldest), shown)
    return () => clearTimeout(timer)
  }, [oldest, held])
  return (
    <div class="toasts" role="log" aria-live="polite" aria-label="Messages" id="announcements" onPointerEnter={() => setHeld(true)} onPointerLeave={() => setHeld(false)}
      onFocusIn={() => setHeld(true)} onFocusOut={() => setHeld(false)}>
      {messages.map(({ id, text }) => (
        <div key={id} class="toast">
          <p>{text}</p>
          <button type="button" class="quiet icon-only" aria-label="Dismiss the message" onClick={() => remove(id)}><Glyph icon={X} size={16} /></button>
        </div>
      ))}
    </div>
  )
}
