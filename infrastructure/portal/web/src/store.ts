import { APIError, inWorkspace, type API } from './api'
import { Feed, Limiter, multiplexed, sleep, type Mode } from './feed'
import { Observable } from './observable'
import type { Config, Instance, KubeObject, Template } from './types'

/** Kind is a kind of instances that a workspace serves. */
export interface Kind {
  resource: string
  kind: string
  version: string
  feed: Feed<Instance>
}

/** Deletion is an instance that the user has deleted here. */
export interface Deletion {
  kind: Kind
  name: string
  uid: string | undefined
}

export type Binding = 'loading' | 'bound' | 'unbound' | 'forbidden' | 'unreachable'

/** unboundInterval is how often a workspace without the export is looked at, boundInterval one with it: kinds come and go. */
const unboundInterval = 5_000
const boundInterval = 60_000

interface ResourceList {
  resources: { name: string; kind: string; verbs?: string[] }[]
}

/**
 * Store has what the portal shows of a workspace. It has all instances of all kinds, whatever is on the screen, so that counts are the same
 * everywhere. Which kinds there are is what the workspace serves: instances of a template that has left the catalogue are still shown.
 */
export class Store extends Observable {
  binding: Binding = 'loading'
  error: Error | undefined
  readonly templates: Feed<Template>
  readonly kinds = new Map<string, Kind>()
  /** deletion is what the list of instances says something about, until it is left. */
  deletion: Deletion | undefined
  /** onInstance is called when an instance has changed. */
  onInstance: ((kind: Kind, before: Instance | undefined, after: Instance | undefined) => void) | undefined

  private readonly ended = new AbortController()
  private readonly limiter = new Limiter(3)
  private focused = ''
  private wake: AbortController | undefined

  constructor(private readonly api: API, readonly config: Config, readonly workspace: string) {
    super()
    this.templates = new Feed<Template>(api, this.path(config.version, 'templates'), this.limiter)
    this.templates.onChange = () => this.lookAgain()
    this.templates.subscribe(() => this.changed())
    document.addEventListener('visibilitychange', this.share)
    window.addEventListener('online', this.online)
    window.addEventListener('offline', this.online)
    void this.run()
  }

  end(): void {
    this.ended.abort()
    document.removeEventListener('visibilitychange', this.share)
    window.removeEventListener('online', this.online)
    window.removeEventListener('offline', this.online)
    for (const feed of this.feeds()) feed.setMode('paused')
  }

  /** path is the URL path of a kind of the provider's group. */
  path(version: string, resource: string, ...name: string[]): string {
    return inWorkspace(this.workspace, 'apis', this.config.group, version, resource, ...name)
  }

  /** focus says which kind is on the screen: it is watched before others. */
  focus(resource: string): void {
    this.focused = resource
    this.share()
  }

  template(name: string): Template | undefined {
    return this.templates.items.get(name)
  }

  /** templateOf returns the template of a kind. */
  templateOf(resource: string): Template | undefined {
    return [...this.templates.items.values()].find((template) => template.spec.instanceCRD.resource === resource)
  }

  /** count is the number of instances, of a kind or of all; undefined until it is known. */
  count(resource?: string): number | undefined {
    const kinds = [...this.kinds.values()].filter((kind) => resource === undefined || kind.resource === resource)
    if (this.binding === 'loading' || kinds.some((kind) => kind.feed.state === 'loading')) return undefined
    return kinds.reduce((sum, kind) => sum + kind.feed.items.size, 0)
  }

  get reconnecting(): boolean {
    return this.binding === 'unreachable' || this.feeds().some((feed) => feed.state === 'reconnecting')
  }

  private feeds(): Feed<any>[] {
    return [this.templates, ...[...this.kinds.values()].map((kind) => kind.feed)]
  }

  private readonly online = (): void => {
    if (navigator.onLine) {
      for (const feed of this.feeds()) if (feed.state !== 'current') feed.restart()
      this.wake?.abort()
    }
    this.changed()
  }

  /** lookAgain finds kinds that have come or gone. */
  lookAgain(): void {
    this.wake?.abort()
  }

  private async run(): Promise<void> {
    while (!this.ended.signal.aborted) {
      this.wake = new AbortController()
      const signal = AbortSignal.any([this.ended.signal, this.wake.signal])
      await this.discover()
      await sleep(this.complete() ? boundInterval : unboundInterval, signal).catch(() => {})
    }
  }

  /** complete says whether every kind of the catalogue is served: a binding follows its export a little later. */
  private complete(): boolean {
    return this.binding === 'bound' && [...this.templates.items.values()].every(({ spec }) => this.kinds.has(spec.instanceCRD.resource))
  }

  private async discover(): Promise<void> {
    const signal = this.ended.signal
    try {
      const group = await this.api.json<{ versions: { version: string }[] }>(inWorkspace(this.workspace, 'apis', this.config.group), { signal })
      const versions = group.versions.map(({ version }) => version)
      const lists = await Promise.all(versions.map((version) =>
        this.limiter.run(() => this.api.json<ResourceList>(inWorkspace(this.workspace, 'apis', this.config.group, version), { signal }))))
      this.take(versions, lists)
    } catch (error) {
      if (signal.aborted) return
      const code = error instanceof APIError ? error.status.code : 0
      this.error = error as Error
      this.binding = code === 404 ? 'unbound' : code === 403 ? 'forbidden' : this.binding === 'bound' ? 'bound' : 'unreachable'
    }
    this.share()
    this.changed()
  }

  private take(versions: string[], lists: ResourceList[]): void {
    const served = new Map<string, { kind: string; version: string }>()
    let catalogue = false
    lists.forEach((list, index) => {
      for (const { name, kind } of list.resources) {
        if (name === 'templates') catalogue = true
        else if (!name.includes('/') && !served.has(name)) served.set(name, { kind, version: versions[index]! })
      }
    })
    for (const [resource, kind] of this.kinds) {
      if (served.has(resource)) continue
      kind.feed.setMode('paused')
      this.kinds.delete(resource)
    }
    for (const [resource, { kind, version }] of served) if (!this.kinds.has(resource)) this.add(resource, kind, version)
    this.error = undefined
    this.binding = catalogue ? 'bound' : 'unbound'
  }

  private add(resource: string, name: string, version: string): void {
    const kind: Kind = { resource, kind: name, version, feed: new Feed<Instance>(this.api, this.path(version, resource), this.limiter) }
    kind.feed.onChange = (before, after) => this.onInstance?.(kind, before, after)
    let empty = true
    kind.feed.subscribe(() => {
      if (empty !== (kind.feed.items.size === 0)) {
        empty = !empty
        this.share()
      }
      this.changed()
    })
    this.kinds.set(resource, kind)
  }

  /**
   * share gives watches to what is on the screen and to kinds that have instances. A browser has few connections to a server that speaks
   * HTTP/1.1, shared by all its tabs, and a watch takes one; what gets none is listed again and again. Hidden pages stand still.
   */
  private readonly share = (): void => {
    const rank = (feed: Feed<KubeObject>): number =>
      feed === this.kinds.get(this.focused)?.feed ? 0 : feed === (this.templates as Feed<any>) ? 1 : feed.items.size > 0 ? 2 : 3
    const feeds = this.feeds().sort((a, b) => rank(a) - rank(b))
    const paused = document.visibilityState === 'hidden' || this.binding !== 'bound'
    const watches = multiplexed() ? 50 : 2
    feeds.forEach((feed, index) => {
      const mode: Mode = paused ? 'paused' : index < watches ? 'watch' : 'poll'
      feed.pollInterval = Math.max(10_000, feeds.length * 500)
      feed.setMode(mode)
    })
  }
}
