import { APIError, inWorkspace, statusOf } from './api'
import { Observable } from './observable'
import { claimsOf, OIDC, type Tokens } from './oidc'
import type { Config } from './types'

/** storageKey is the key in sessionStorage, which ends with the tab. */
const storageKey = 'portal.session'

interface Signed extends Tokens {
  user: string
  /** since is when the token was obtained. */
  since: number
  /** workspace is where the token was checked: an issuer may be known in some workspaces only. */
  workspace: string
}

/** review asks a workspace whose token this is. */
function review(token: string, workspace: string): Promise<Response> {
  return fetch(inWorkspace(workspace, 'apis', 'authentication.k8s.io', 'v1', 'selfsubjectreviews'), {
    method: 'POST', credentials: 'omit', cache: 'no-store', redirect: 'error',
    headers: { 'Content-Type': 'application/json', Accept: 'application/json', Authorization: `Bearer ${token}` },
    body: JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }),
  })
}

/**
 * Session holds the credentials of the user: in memory, and in sessionStorage so that loading the page again does not end it. While it has
 * none, requests wait; what the user has typed elsewhere on the page stays.
 */
export class Session extends Observable {
  private signed: Signed | undefined
  private waiting: ((token: string) => void)[] = []
  private refreshing: Promise<void> | undefined
  /** expired is set where the credentials of a session that existed were refused. */
  expired = false
  readonly oidc: OIDC | undefined

  constructor(config: Config) {
    super()
    this.oidc = config.oidc && new OIDC(config.oidc)
    const stored = sessionStorage.getItem(storageKey)
    if (stored) this.signed = JSON.parse(stored) as Signed
  }

  get user(): string {
    return this.signed?.user ?? ''
  }

  get signedIn(): boolean {
    return this.signed !== undefined
  }

  /** token returns the present token, or waits until there is one. */
  async token(signal?: AbortSignal): Promise<string> {
    if (this.signed?.expires && this.signed.expires < Date.now() + 30_000) await this.refresh()
    if (this.signed) return this.signed.token
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const waiter = (token: string) => resolve(token)
      this.waiting.push(waiter)
      signal?.addEventListener('abort', () => {
        this.waiting = this.waiting.filter((other) => other !== waiter)
        reject(signal.reason)
      })
    })
  }

  /**
   * isValid says whether the workspace of the sign-in still accepts a token that another workspace does not. It needs no access there. A server
   * that is busy or not available says nothing about the token.
   */
  async isValid(token: string): Promise<boolean> {
    return (await review(token, this.signed?.workspace || 'root')).status !== 401
  }

  /** refused is called with a token that a server does not accept. */
  refused(token: string): void {
    if (this.signed?.token !== token) return // there is another one since
    // A token that is refused as soon as it has been issued has no better successor.
    if (this.signed.refreshToken && Date.now() - this.signed.since > 60_000) this.signed.expires = 1
    else this.expire()
  }

  private expire(): void {
    this.signed = undefined
    this.expired = true
    sessionStorage.removeItem(storageKey)
    this.changed()
  }

  private refresh(): Promise<void> {
    const before = this.signed
    this.refreshing ??= (async () => {
      try {
        const refreshToken = this.signed?.refreshToken
        if (!this.oidc || !refreshToken) {
          // The issuer or the server says when a token without a successor ends.
          if (this.signed!.expires! < Date.now()) this.expire()
          return
        }
        const tokens = await this.oidc.refresh(refreshToken)
        // Who has signed out meanwhile stays signed out.
        if (before && this.signed === before) this.keep({ ...before, ...tokens, since: Date.now() })
      } catch {
        if (this.signed === before) this.expire()
      } finally {
        this.refreshing = undefined
      }
    })()
    return this.refreshing
  }

  private keep(signed: Signed): void {
    this.signed = signed
    this.expired = false
    sessionStorage.setItem(storageKey, JSON.stringify(signed))
    const waiting = this.waiting
    this.waiting = []
    waiting.forEach((resolve) => resolve(signed.token))
    this.changed()
  }

  /** signIn checks tokens by asking who the user is; it throws what is to be shown. */
  async signIn(tokens: Tokens, workspace: string): Promise<void> {
    if (!/^[\x21-\x7e]+$/.test(tokens.token)) throw new Error('This is no token: a token has no spaces and no line breaks.')
    const response = await review(tokens.token, workspace)
    if (response.status === 401) throw new Error('The server does not accept this token: it is wrong or has expired.')
    // Who may not look into that workspace is signed in nevertheless; others may be open to them.
    if (!response.ok && response.status !== 403 && response.status !== 404) throw new APIError(await statusOf(response))
    const answer = response.ok ? await response.json() : undefined
    const claims = claimsOf(tokens.token)
    const user = answer?.status?.userInfo?.username ?? claims?.email ?? claims?.sub ?? ''
    this.keep({ ...tokens, user: String(user), since: Date.now(), workspace })
  }

  signOut(): void {
    this.signed = undefined
    this.expired = false
    sessionStorage.clear()
    this.changed()
  }
}
