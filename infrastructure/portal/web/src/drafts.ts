const storageKey = 'portal.drafts'

/**
 * Drafts keeps what was typed in forms that were not sent, by the address of the form. It is in memory; only while the user is at the
 * issuer to sign in, it is in sessionStorage.
 */
export class Drafts {
  private readonly drafts: Map<string, unknown>

  constructor() {
    this.drafts = new Map(JSON.parse(sessionStorage.getItem(storageKey) ?? '[]') as [string, unknown][])
    sessionStorage.removeItem(storageKey)
  }

  get<T>(address: string): T | undefined {
    return this.drafts.get(address) as T | undefined
  }

  set(address: string, draft: unknown): void {
    this.drafts.set(address, draft)
  }

  /** delete also deletes what has a longer key: the address, a space, and more. */
  delete(address: string): void {
    for (const key of [...this.drafts.keys()]) if (key === address || key.startsWith(`${address} `)) this.drafts.delete(key)
  }

  clear(): void {
    this.drafts.clear()
  }

  /** store keeps the drafts until the page is loaded again. */
  store(): void {
    sessionStorage.setItem(storageKey, JSON.stringify([...this.drafts]))
  }
}
