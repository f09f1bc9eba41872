import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import { formatPath, type Path } from '../errors'
import type { Schema } from '../types'
import type { Value } from '../values'

/** FormState is what the fields of a form share. */
export interface FormState {
  /** messages returns what the server says about the field at a path, if it shall be shown yet. */
  messages(path: Path): string[]
  /** touch says that the user has been at a field. */
  touch(path: Path): void
  /** invalid tells of text that is no value, such as a number with letters; an empty message takes it back. */
  invalid(path: Path, message: string): void
}

export const FormContext = createContext<FormState>({ messages: () => [], touch: () => {}, invalid: () => {} })

export interface FieldProps {
  schema: Schema
  label: string
  path: Path
  value: Value
  required: boolean
  onChange(value: Value): void
  /** labelHidden is for fields that have their label beside them, such as the entries of a list. */
  onRemove?: () => void
}

/** fieldID is the ID of the control of a field. */
export function fieldID(path: Path): string {
  return `field-${encodeURIComponent(formatPath(path))}`
}

export function useField(path: Path) {
  const form = useContext(FormContext)
  const messages = form.messages(path)
  const id = fieldID(path)
  return { form, messages, id, touch: () => afterPress(() => form.touch(path)) }
}

let pressed = false
let waiting: (() => void)[] = []

document.addEventListener('pointerdown', () => {
  pressed = true
}, true)
for (const type of ['pointerup', 'pointercancel']) {
  document.addEventListener(type, () => {
    pressed = false
    const released = waiting
    waiting = []
    setTimeout(() => released.forEach((work) => work())) // after the click
  }, true)
}

/**
 * afterPress does work that may move what is on the page: at once, or after the click if the user is pressing on something. A button that has
 * moved when it is released gets no click.
 */
function afterPress(work: () => void): void {
  if (pressed) waiting.push(work)
  else work()
}
