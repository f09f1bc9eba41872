import { APIError } from './api'
import type { Cause, Status } from './types'

/** Path is the way to a field, such as spec, ports, 0, name. */
export type Path = (string | number)[]

/** FieldError is a message about a field. */
export interface FieldError {
  path: Path
  message: string
}

/** parsePath reads the path of a field as servers write it: spec.ports[0].name, spec.labels[a.b/c]. */
export function parsePath(text: string): Path {
  const path: Path = []
  for (const [, name, key] of text.matchAll(/([^.[\]]+)|\[([^\]]*)\]/g)) {
    if (name !== undefined) path.push(name)
    else path.push(/^\d+$/.test(key!) ? Number(key) : key!)
  }
  return path
}

export function formatPath(path: Path): string {
  return path.reduce<string>((text, part) => (typeof part === 'number' ? `${text}[${part}]` : text ? `${text}.${part}` : part), '')
}

const plainReasons: Record<string, string> = {
  FieldValueRequired: 'A value is required.',
}

function messageOf(cause: Cause): string {
  const message = cause.message ?? ''
  if (/^Required value:?\s*$/.test(message) || !message) return plainReasons[cause.reason ?? ''] ?? message
  return message.replace(/^(Required|Invalid|Unsupported) value: /, '$1 value: ')
}

/** fieldErrors returns what a server says about fields; without any, the error is about the whole. */
export function fieldErrors(error: unknown): FieldError[] {
  if (!(error instanceof APIError)) return []
  const { status } = error
  // An error about "patch" quotes the whole object; what is wrong with it is in the message.
  const causes = (status.details?.causes ?? []).filter(({ field }) => field && field !== '<nil>' && field !== 'patch')
  if (causes.length > 0) return unique(causes.map((cause) => ({ path: parsePath(cause.field!), message: messageOf(cause) })))
  const unknown = [...status.message.matchAll(/(unknown|duplicate) field "([^"]+)"/g)]
  return unknown.map(([, what, field]) => ({ path: parsePath(field!), message: what === 'unknown' ? 'There is no such field.' : 'The field is there twice.' }))
}

function unique(errors: FieldError[]): FieldError[] {
  const seen = new Set<string>()
  return errors.filter(({ path, message }) => {
    const key = `${formatPath(path)}\n${message}`
    return !seen.has(key) && seen.add(key)
  })
}

/** explain says in plain words what went wrong. what is what was tried, such as "create caches". */
export function explain(error: unknown, what: string): string {
  if (error instanceof APIError) return explainStatus(error.status, what)
  if (error instanceof TypeError) return 'The server cannot be reached. What you have typed is kept; try again.'
  return error instanceof Error ? error.message : String(error)
}

function explainStatus(status: Status, what: string): string {
  switch (status.code) {
    case 403:
      return `You may not ${what} in this workspace. Ask an administrator of the workspace for that permission. The server says: ${status.message}`
    case 404:
      return `It is not there (any more). The server says: ${status.message}`
    case 429:
      return 'The server has too much to do at the moment. Try again in a few seconds.'
    default:
      return status.message.replace(/^.*strict decoding error: /s, '')
  }
}
