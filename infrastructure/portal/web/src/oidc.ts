/** Tokens are the credentials of a user. */
export interface Tokens {
  token: string
  refreshToken?: string
  /** expires is when the token ends, in milliseconds since 1970. */
  expires?: number
}

interface Discovery {
  issuer: string
  authorization_endpoint: string
  token_endpoint: string
  scopes_supported?: string[]
}

interface Pending {
  state: string
  nonce: string
  verifier: string
  /** hash is where the user was. */
  hash: string
}

const pendingKey = 'portal.oidc'

/** optionalScopes are asked for where the issuer has them: most map users and groups from their claims. */
const optionalScopes = ['profile', 'email', 'groups', 'offline_access']

/** claimsOf returns the claims of a JSON web token, without verifying it: the server does, and the issuer sent it over its own connection. */
export function claimsOf(token: string): Record<string, unknown> | undefined {
  try {
    const payload = token.split('.')[1]!.replace(/-/g, '+').replace(/_/g, '/')
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(payload), (c) => c.charCodeAt(0))))
  } catch {
    return undefined
  }
}

function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '')
}

function random(): string {
  return base64url(crypto.getRandomValues(new Uint8Array(32)))
}

/** OIDC signs in with the authorization code flow and PKCE, as a public client: there is no secret. */
export class OIDC {
  private discovered: Promise<Discovery> | undefined

  constructor(private readonly config: { issuerURL: string; clientID: string }) {}

  private get redirectURI(): string {
    return location.origin + location.pathname
  }

  private discover(): Promise<Discovery> {
    this.discovered ??= this.fetchDiscovery().catch((error) => {
      this.discovered = undefined
      throw error
    })
    return this.discovered
  }

  private async fetchDiscovery(): Promise<Discovery> {
    const url = `${this.config.issuerURL.replace(/\/$/, '')}/.well-known/openid-configuration`
    const response = await fetch(url, { credentials: 'omit', referrerPolicy: 'no-referrer' })
    if (!response.ok) throw new Error(`The issuer answered ${response.status} to ${url}.`)
    const discovery = (await response.json()) as Discovery
    if (discovery.issuer !== this.config.issuerURL) throw new Error(`The issuer calls itself ${discovery.issuer}, expected ${this.config.issuerURL}.`)
    return discovery
  }

  /** begin leaves the page for the issuer's. */
  async begin(): Promise<void> {
    if (!crypto.subtle) throw new Error('Signing in with an issuer needs a page that is served by HTTPS.')
    const discovery = await this.discover()
    const pending: Pending = { state: random(), nonce: random(), verifier: random(), hash: location.hash }
    const challenge = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(pending.verifier)))
    const scopes = ['openid', ...optionalScopes.filter((scope) => discovery.scopes_supported?.includes(scope))]
    const url = new URL(discovery.authorization_endpoint)
    for (const [name, value] of Object.entries({
      response_type: 'code', client_id: this.config.clientID, redirect_uri: this.redirectURI, scope: scopes.join(' '),
      state: pending.state, nonce: pending.nonce, code_challenge: base64url(challenge), code_challenge_method: 'S256',
    })) url.searchParams.set(name, value)
    sessionStorage.setItem(pendingKey, JSON.stringify(pending))
    location.assign(url)
  }

  /** complete returns the tokens where the issuer has sent the user back, and undefined where it has not. The address loses the code. */
  async complete(): Promise<Tokens | undefined> {
    const answer = new URLSearchParams(location.search)
    if (!answer.has('state')) return undefined
    const stored = sessionStorage.getItem(pendingKey)
    sessionStorage.removeItem(pendingKey)
    const pending = stored ? (JSON.parse(stored) as Pending) : undefined
    history.replaceState(null, '', location.pathname + (pending?.hash ?? ''))
    if (!pending || pending.state !== answer.get('state')) throw new Error('This answer of the issuer belongs to no sign-in of this tab. Sign in again.')
    if (answer.has('error')) throw new Error(`The issuer refused: ${answer.get('error_description') ?? answer.get('error')}.`)
    const issuer = answer.get('iss')
    if (issuer && issuer !== this.config.issuerURL) throw new Error('This answer comes from another issuer. Sign in again.')
    return this.exchange({
      grant_type: 'authorization_code', code: answer.get('code') ?? '', redirect_uri: this.redirectURI, code_verifier: pending.verifier,
    }, pending.nonce)
  }

  /** refresh returns new tokens. */
  async refresh(refreshToken: string): Promise<Tokens> {
    const tokens = await this.exchange({ grant_type: 'refresh_token', refresh_token: refreshToken })
    return { refreshToken, ...tokens }
  }

  private async exchange(parameters: Record<string, string>, nonce?: string): Promise<Tokens> {
    const { token_endpoint } = await this.discover()
    const response = await fetch(token_endpoint, {
      method: 'POST', credentials: 'omit', referrerPolicy: 'no-referrer', headers: { Accept: 'application/json' },
      body: new URLSearchParams({ ...parameters, client_id: this.config.clientID }),
    })
    const body = await response.json().catch(() => ({}))
    if (!response.ok || !body.id_token) throw new Error(`The issuer gave no token: ${body.error_description ?? body.error ?? response.status}.`)
    const expires = this.verify(claimsOf(body.id_token), nonce)
    return { token: body.id_token, expires, ...(body.refresh_token ? { refreshToken: body.refresh_token as string } : {}) }
  }

  /** verify checks the claims that say for whom, and for which sign-in, a token is. It returns when it expires. */
  private verify(claims: Record<string, unknown> | undefined, nonce?: string): number {
    const audiences = [claims?.aud].flat()
    if (!claims || claims.iss !== this.config.issuerURL || !audiences.includes(this.config.clientID)) throw new Error('The token is for somebody else.')
    if (nonce !== undefined && claims.nonce !== nonce) throw new Error('The token belongs to another sign-in.')
    const expires = Number(claims.exp) * 1000
    if (!(expires > Date.now())) throw new Error('The token has expired. Is the clock of this computer right?')
    return expires
  }
}
