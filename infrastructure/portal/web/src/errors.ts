import { APIError } from './api'
import type { Status } from './types'
import { inWords } from './words'

/** Path is the way to a field, such as spec, ports, 0, name. */
export type Path = (string | number)[]

/** FieldError is a message about a field. */
export interface FieldError {
  path: Path
  message: string
}

/** Explanation is what went wrong in plain words, and what the server has said, for who wants to know or asks for help. */
export interface Explanation {
  text: string
  raw: string
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

/** fieldErrors returns what a server says about fields; without any, the error is about the whole. */
export function fieldErrors(error: unknown): FieldError[] {
  if (!(error instanceof APIError)) return []
  const { status } = error
  if (status.reason === 'AlreadyExists') return [{ path: ['metadata', 'name'], message: 'There already is one with this name. Choose another.' }]
  // An error about "patch" quotes the whole object; what is wrong with it is in the message.
  const causes = (status.details?.causes ?? []).filter(({ field }) => field && field !== '<nil>' && field !== 'patch')
  if (causes.length > 0) return unique(causes.map((cause) => ({ path: parsePath(cause.field!), message: inWords(cause) })))
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

/** rawOf is what a server has said word for word; empty where no server has. */
export function rawOf(error: unknown): string {
  return error instanceof APIError ? error.status.message : ''
}

/** explain says in plain words what went wrong. what is what was tried, such as "create caches"; where is left out if that says it. */
export function explain(error: unknown, what: string, where = ' in this workspace'): Explanation {
  const raw = rawOf(error)
  if (error instanceof APIError) return { text: explainStatus(error.status, what, where), raw }
  if (error instanceof TypeError) return { text: 'The server cannot be reached. What you have typed is kept; try again.', raw }
  return { text: error instanceof Error ? error.message : String(error), raw }
}

function explainStatus({ code, reason, message }: Status, what: string, where: string): string {
  // Admission webhooks and policies, which are the provider's, have a message for people.
  const refusal = /denied (?:the )?request: (.+)$/s.exec(message)?.[1]
  if (refusal) return `A rule of the platform does not allow you to ${what}: ${refusal}`
  switch (code) {
    case 401:
      return `This workspace does not accept your credentials: you may not ${what}. Sign in with those of one of its issuers.`
    case 403:
      return forbidden(message, what, where)
    case 404:
      return 'It is not there (any more).'
    case 409:
      return reason === 'AlreadyExists' ? 'There already is one with this name.' : 'Somebody else has changed it meanwhile. Nothing was written; look at it again.'
    case 413:
      return 'That is too large for the server.'
    case 429:
      return 'The server has too much to do at the moment. Try again in a few seconds.'
    case 503:
    case 504:
      return 'The server is not available at the moment. Try again in a few seconds.'
    default:
      return code >= 500 ? `The server has failed to ${what}. Try again; if that does not help, ask who runs it.` : `The server does not accept the request to ${what}.`
  }
}

/** forbidden tells the permission of a user, which an administrator can give, from other limits. */
function forbidden(message: string, what: string, where: string): string {
  const quota = /exceeded quota: ([^,]+)/.exec(message)?.[1]
  if (quota) return `The quota ${quota} of the workspace does not allow you to ${what}: there is no more room in it.`
  if (/because it is being terminated|is being deleted/.test(message)) return `The workspace is being deleted: you cannot ${what} there.`
  if (/marked inactive/.test(message)) return 'The workspace is closed: only its LogicalCluster can be read.'
  return `You may not ${what}${where}. Ask an administrator of the workspace for that permission.`
}
