import { APIError, type API } from './api'
import { Observable } from './observable'
import type { KubeObject, Status } from './types'

/** FeedState is how current the objects are. */
export type FeedState = 'loading' | 'current' | 'reconnecting' | 'failed'

/** Mode is how a feed stays current. */
export type Mode = 'watch' | 'poll' | 'paused'

/** pageSize is how many objects a request lists. */
export const pageSize = 500
/** mostItems is up to how many objects of an incomplete list are asked for: more make a page slow, and nobody reads them. */
export const mostItems = 5_000
/** together is how long changes are collected before the page is rendered, in milliseconds. */
const together = 16
const watchSeconds = 290
const longestDelay = 30_000
/** shortestWatch is the least time between two watches, for servers that end them at once. */
const shortestWatch = 1_000

interface Event<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR'
  object: T
}

/** Limiter lets a number of functions run at a time. */
export class Limiter {
  private waiting: (() => void)[] = []

  constructor(private free: number) {}

  async run<R>(work: () => Promise<R>): Promise<R> {
    if (this.free > 0) this.free--
    else await new Promise<void>((resolve) => this.waiting.push(resolve))
    try {
      return await work()
    } finally {
      const next = this.waiting.shift()
      if (next) next()
      else this.free++
    }
  }
}

/** Feed has the objects of a kind in a workspace, and keeps them current by watching or by listing again. */
export class Feed<T extends KubeObject> extends Observable {
  readonly items = new Map<string, T>()
  state: FeedState = 'loading'
  error: Error | undefined
  /** onChange is called with what was and is, after the first list; either may be missing. */
  onChange: ((before: T | undefined, after: T | undefined) => void) | undefined
  pollInterval = 15_000
  /** maximum is how many objects are listed; there are more if complete is false. Those are not taken from a watch either. */
  maximum = Infinity
  complete = true

  private mode: Mode = 'paused'
  private resourceVersion = ''
  private loaded = false
  private running: AbortController | undefined
  private failures = 0
  /** last is the last name of an incomplete list; names come in the order of their bytes. */
  private last = ''
  private telling: ReturnType<typeof setTimeout> | undefined

  /** selector are parameters of list and watch, such as fieldSelector. */
  constructor(private readonly api: API, readonly path: string, private readonly limiter: Limiter, private readonly selector: Record<string, string> = {}) {
    super()
  }

  get sorted(): T[] {
    return [...this.items.values()].sort((a, b) => a.metadata.name.localeCompare(b.metadata.name))
  }

  setMode(mode: Mode): void {
    if (mode === this.mode) return
    this.mode = mode
    this.restart()
  }

  /** hasMore says whether more() lists more. */
  get hasMore(): boolean {
    return !this.complete && this.items.size < mostItems
  }

  /** more lists a page more. */
  more(): void {
    if (!this.hasMore) return
    this.maximum = Math.min(this.items.size + pageSize, mostItems)
    this.resourceVersion = ''
    this.restart()
  }

  /** restart tries again now. */
  restart(): void {
    this.running?.abort()
    this.running = undefined
    if (this.mode === 'paused') return
    const running = new AbortController()
    this.running = running
    void this.run(running.signal)
  }

  /** apply takes over what a server has answered to a write, unless the watch was faster: it may have a newer state, or the deletion. */
  apply(object: T): void {
    const seen = this.items.get(object.metadata.name)?.metadata.resourceVersion ?? this.resourceVersion
    if (isNewer(seen, object.metadata.resourceVersion)) return
    this.put(object)
    this.changed()
  }

  private async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (!this.resourceVersion || this.mode === 'poll') await this.limiter.run(() => this.list(signal))
        if (this.mode === 'poll') await sleep(this.pollInterval, signal)
        else await Promise.all([this.watch(signal), sleep(shortestWatch, signal)])
        this.failures = 0
      } catch (error) {
        if (signal.aborted) return
        await this.failed(error as Error, signal)
      }
    }
  }

  /** failed waits before the next attempt. The objects stay; a watch resumes where it ended, but after 410, which asks for a new list. */
  private async failed(error: Error, signal: AbortSignal): Promise<void> {
    const code = error instanceof APIError ? error.status.code : 0
    const refused = code === 401 || code === 403 || code === 404
    if (code === 410 || refused) this.resourceVersion = ''
    if (code !== 410) {
      this.error = error
      this.state = refused ? 'failed' : 'reconnecting'
      this.changed()
    }
    this.failures++
    if (code === 410 && this.failures === 1) return
    const delay = refused ? longestDelay : Math.min(longestDelay, 500 * 2 ** this.failures) * (0.75 + Math.random() / 2)
    await sleep(delay, signal).catch(() => {}) // an end of the feed ends the loop
  }

  private async list(signal: AbortSignal): Promise<void> {
    const found = new Map<string, T>()
    let next = ''
    let version = ''
    do {
      const parameters = new URLSearchParams({ ...this.selector, limit: String(pageSize), ...(next ? { continue: next } : {}) })
      const page = await this.api.json<{ items?: T[]; metadata: { resourceVersion: string; continue?: string } }>(`${this.path}?${parameters}`, { signal })
      for (const item of page.items ?? []) found.set(item.metadata.name, item)
      version = page.metadata.resourceVersion
      next = page.metadata.continue ?? ''
    } while (next && found.size < this.maximum)
    this.complete = !next
    this.last = [...found.keys()].reduce((last, name) => (name > last ? name : last), '')
    for (const name of this.items.keys()) if (!found.has(name)) this.remove(name)
    for (const item of found.values()) this.put(item)
    this.loaded = true
    this.resourceVersion = version
    this.current()
  }

  private current(): void {
    this.state = 'current'
    this.error = undefined
    this.changed()
  }

  private async watch(signal: AbortSignal): Promise<void> {
    const parameters = new URLSearchParams({
      ...this.selector, watch: '1', allowWatchBookmarks: 'true', resourceVersion: this.resourceVersion, timeoutSeconds: String(watchSeconds),
    })
    // A connection that has died without a word ends at the time-out, too.
    const silence = AbortSignal.timeout((watchSeconds + 30) * 1000)
    const response = await this.api.fetch(`${this.path}?${parameters}`, { signal: AbortSignal.any([signal, silence]) })
    if (this.state !== 'current') this.current()
    for await (const line of lines(response.body!)) this.handle(JSON.parse(line) as Event<T>)
  }

  private handle(event: Event<T>): void {
    if (event.type === 'ERROR') throw new APIError(event.object as unknown as Status)
    this.failures = 0
    this.resourceVersion = event.object.metadata.resourceVersion!
    if (event.type === 'BOOKMARK') return
    const { name } = event.object.metadata
    if (event.type === 'DELETED' ? this.remove(name) : (this.complete || name <= this.last) && this.put(event.object)) this.changedSoon()
  }

  /** changedSoon tells listeners once of all events that come together. */
  private changedSoon(): void {
    this.telling ??= setTimeout(() => {
      this.telling = undefined
      this.changed()
    }, together)
  }

  /** put reports whether that changed anything. */
  private put(after: T): boolean {
    const before = this.items.get(after.metadata.name)
    if (before?.metadata.resourceVersion === after.metadata.resourceVersion && before?.metadata.uid === after.metadata.uid) return false
    this.items.set(after.metadata.name, after)
    if (this.loaded) this.onChange?.(before, after)
    return true
  }

  /** remove reports whether that changed anything. */
  private remove(name: string): boolean {
    const before = this.items.get(name)
    this.items.delete(name)
    if (before && this.loaded) this.onChange?.(before, undefined)
    return before !== undefined
  }
}

/** multiplexed says whether requests share a connection. Others are few per browser, and a watch takes one. */
export function multiplexed(): boolean {
  const [page] = performance.getEntriesByType('navigation') as PerformanceNavigationTiming[]
  return page?.nextHopProtocol === 'h2' || page?.nextHopProtocol === 'h3'
}

/** isNewer compares resource versions, which API servers count. */
function isNewer(one: string | undefined, other: string | undefined): boolean {
  const isNumber = /^\d+$/
  return isNumber.test(one ?? '') && isNumber.test(other ?? '') && BigInt(one!) > BigInt(other!)
}

/** lines yields the lines of a stream as they come. */
async function* lines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader()
  let rest = ''
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return
      const parts = (rest + value).split('\n')
      rest = parts.pop()!
      for (const part of parts) if (part) yield part
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}

/** sleep ends early, with an error, when the signal is aborted. */
export function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
    const timer = setTimeout(resolve, milliseconds)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      reject(signal.reason)
    })
  })
}
