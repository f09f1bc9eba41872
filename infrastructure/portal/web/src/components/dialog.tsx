import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'

interface DialogProps {
  title: string
  children: ComponentChildren
  /** onCancel is called for Escape; without it, the dialog stays. */
  onCancel?: () => void
}

/** Dialog is modal: the browser keeps the focus in it, and gives it back afterwards. */
export function Dialog({ title, children, onCancel }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    const before = document.activeElement
    const dialog = element.current!
    dialog.showModal()
    return () => {
      dialog.close()
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  return (
    <dialog ref={element} aria-labelledby="dialog-title" onCancel={(event) => {
      event.preventDefault()
      onCancel?.()
    }}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  )
}
