import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { explain, fieldErrors, formatPath, type FieldError, type Path } from '../errors'
import type { Schema } from '../types'
import { labelOf, widgetPath } from '../values'
import type { FormState } from './context'

/** nameLabel is what a form calls the name of an object. */
export const nameLabel = 'Name of the object'

/** dryRunDelay is how long nothing is typed before the server is asked. */
const dryRunDelay = 600

/** LabelledError is a message about a field, with what the form calls it; empty for the whole. */
export interface LabelledError extends FieldError {
  label: string
}

export interface Validation {
  state: FormState
  /** general is what is wrong and belongs to no field. */
  general: string
  /** fields are the errors with the fields of the form that they belong to. */
  fields: LabelledError[]
  /** raw is what the server has said word for word. */
  raw: string
  /** complete is set after an attempt to send: then everything is shown, whether the user has been there or not. */
  complete: boolean
  /** submit runs what sends, and keeps the errors; it says whether it went well. */
  submit(send: () => Promise<void>): Promise<boolean>
  busy: boolean
  /** attempts counts the attempts that failed. */
  attempts: number
}

/**
 * useValidation has the server decide: after every change it is asked by a dry run, and what it says about a field is shown there once the
 * user has been at that field. what is what is tried, such as "create caches".
 */
export function useValidation(schema: Schema, content: unknown, what: string, dryRun: (signal: AbortSignal) => Promise<void>): Validation {
  const [error, setError] = useState<unknown>()
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set())
  const [unreadable, setUnreadable] = useState<ReadonlyMap<string, FieldError>>(new Map())
  const [complete, setComplete] = useState(false)
  const [busy, setBusy] = useState(false)
  const [attempts, setAttempts] = useState(0)
  const text = JSON.stringify(content)
  const first = useRef(true)

  useEffect(() => {
    if (first.current) {
      first.current = false
      return
    }
    const ended = new AbortController()
    const timer = setTimeout(() => {
      dryRun(ended.signal).then(() => setError(undefined), (reason) => !ended.signal.aborted && setError(reason))
    }, dryRunDelay)
    return () => {
      clearTimeout(timer)
      ended.abort()
    }
  }, [text])

  const fields = useMemo(() => {
    const root: Schema = { type: 'object', properties: { metadata: { type: 'object', properties: { name: { type: 'string' } } }, spec: schema } }
    return [...fieldErrors(error), ...unreadable.values()].map(({ path, message }) => {
      const known = widgetPath(root, path)
      const rest = formatPath(path.slice(known.length))
      return { path: known, label: known[0] === 'spec' ? labelOf(schema, known.slice(1)) : known.length > 1 ? nameLabel : '', message: rest ? `${rest}: ${message}` : message }
    })
  }, [error, unreadable, schema])

  const state = useMemo((): FormState => ({
    messages: (path: Path) => {
      const key = formatPath(path)
      if (!complete && !touched.has(key) && !unreadable.has(key)) return []
      return fields.filter((field) => formatPath(field.path) === key).map(({ message }) => message)
    },
    touch: (path) => setTouched((before) => (before.has(formatPath(path)) ? before : new Set(before).add(formatPath(path)))),
    invalid: (path, message) => setUnreadable((before) => {
      const key = formatPath(path)
      if ((before.get(key)?.message ?? '') === message) return before
      const after = new Map(before)
      if (message) after.set(key, { path, message })
      else after.delete(key)
      return after
    }),
  }), [fields, touched, unreadable, complete])

  const submit = useCallback(async (send: () => Promise<void>) => {
    setComplete(true)
    if (unreadable.size > 0) {
      setAttempts((count) => count + 1)
      return false
    }
    setBusy(true)
    try {
      await send()
      setError(undefined)
      return true
    } catch (reason) {
      setError(reason)
      setAttempts((count) => count + 1)
      return false
    } finally {
      setBusy(false)
    }
  }, [unreadable])

  const explanation = error === undefined ? undefined : explain(error, what)
  const general = fieldErrors(error).length === 0 ? explanation?.text ?? '' : ''
  return { state, general, fields, raw: explanation?.raw ?? '', complete, submit, busy, attempts }
}
