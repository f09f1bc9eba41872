import type { Session } from './session'
import type { Status } from './types'

/** APIError is the answer of a server that refused a request. */
export class APIError extends Error {
  constructor(readonly status: Status) {
    super(status.message)
  }
}

/** TooLongError is an answer with more bytes than the caller reads. */
export class TooLongError extends Error {
  constructor(limit: number) {
    super(`The server answers with more than ${limit} bytes.`)
  }
}

export interface Request {
  method?: string
  body?: unknown
  contentType?: string
  signal?: AbortSignal
}

/** statusOf reads the Status in the body of a response; other bodies (of a proxy, say) become one. */
export async function statusOf(response: Response): Promise<Status> {
  const text = await response.text()
  try {
    const status = JSON.parse(text)
    if (status?.kind === 'Status') return { ...status, code: status.code ?? response.status }
  } catch {
    // The text is the message.
  }
  return { code: response.status, message: text.trim().slice(0, 500) || `The server answered ${response.status} ${response.statusText}` }
}

/**
 * API sends requests with the credentials of the user. It has a session sign in again where these are refused, and repeats the request. With
 * several workspaces on a page, a refusal by one of them is an error like others as long as the workspace of the sign-in accepts the credentials.
 */
export class API {
  constructor(private readonly session: Session, private readonly severalWorkspaces = false) {}

  async fetch(path: string, { method = 'GET', body, contentType = 'application/json', signal }: Request = {}): Promise<Response> {
    for (;;) {
      const token = await this.session.token(signal)
      const headers: Record<string, string> = { Accept: 'application/json', Authorization: `Bearer ${token}` }
      if (body !== undefined) headers['Content-Type'] = contentType
      const response = await fetch(path, {
        method, headers, signal: signal ?? null, body: body === undefined ? null : JSON.stringify(body),
        credentials: 'omit', cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer',
      })
      if (response.ok) return response
      const status = await statusOf(response)
      if (response.status !== 401 || (this.severalWorkspaces && await this.session.isValid(token))) throw new APIError(status)
      this.session.refused(token)
    }
  }

  async json<T>(path: string, request?: Request): Promise<T> {
    return (await this.fetch(path, request)).json() as Promise<T>
  }

  /** text reads an answer of at most limit bytes. */
  async text(path: string, limit: number, request?: Request): Promise<string> {
    const reader = (await this.fetch(path, request)).body!.getReader()
    const decoder = new TextDecoder()
    let text = ''
    for (let size = 0; ;) {
      const { value, done } = await reader.read()
      if (done) return text + decoder.decode()
      size += value.length
      if (size > limit) {
        await reader.cancel().catch(() => {}) // the connection may have ended
        throw new TooLongError(limit)
      }
      text += decoder.decode(value, { stream: true })
    }
  }
}

const workspacePattern = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(:[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/

/** isWorkspace says whether a text is the path, or the name of the logical cluster, of a workspace. */
export function isWorkspace(text: string): boolean {
  return workspacePattern.test(text)
}

/** isName says whether a text is the name of an object, which shells and paths take as it is. */
export function isName(text: string): boolean {
  return /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(text)
}

/** inWorkspace returns the URL path of an API in a workspace. */
export function inWorkspace(workspace: string, ...segments: string[]): string {
  if (!isWorkspace(workspace)) throw new Error(`${workspace} is no path of a workspace`)
  return ['/clusters', workspace, ...segments.map(encodeURIComponent)].join('/')
}
