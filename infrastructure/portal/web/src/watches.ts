import { useEffect, useState } from 'preact/hooks'
import type { API } from './api'
import { usePortal } from './context'
import { Feed, Limiter, multiplexed, pageSize } from './feed'
import { Observable, useObservables } from './observable'
import type { KubeObject } from './types'

/**
 * Watches has the feeds of what is on the screen in the console. The newest ones watch; the others list again and again, because a browser has
 * few connections. Those of hidden pages stand still.
 */
export class Watches extends Observable {
  private feeds: Feed<any>[] = []
  private readonly limiter = new Limiter(4)

  /** api sends requests to several workspaces, of which some may refuse the credentials. */
  constructor(readonly api: API) {
    super()
    document.addEventListener('visibilitychange', () => this.share())
    for (const event of ['online', 'offline']) window.addEventListener(event, () => {
      if (navigator.onLine) for (const feed of this.feeds) if (feed.state !== 'current') feed.restart()
      this.changed()
    })
  }

  open<T extends KubeObject>(path: string, selector?: Record<string, string>, maximum = pageSize): Feed<T> {
    const feed = new Feed<T>(this.api, path, this.limiter, selector)
    feed.maximum = maximum
    return feed
  }

  /** start keeps a feed current until the returned function is called. */
  start(feed: Feed<any>): () => void {
    this.feeds.unshift(feed)
    let { state } = feed
    const end = feed.subscribe(() => {
      if (feed.state !== state) this.changed()
      state = feed.state
    })
    this.share()
    return () => {
      end()
      feed.setMode('paused')
      this.feeds = this.feeds.filter((other) => other !== feed)
      this.share()
    }
  }

  get reconnecting(): boolean {
    return this.feeds.some((feed) => feed.state === 'reconnecting')
  }

  private share(): void {
    const watches = multiplexed() ? 50 : 2
    this.feeds.forEach((feed, index) => feed.setMode(document.visibilityState === 'hidden' ? 'paused' : index < watches ? 'watch' : 'poll'))
    this.changed()
  }
}

/** useFeed has the objects at a path, the first ones by name up to a maximum, while the component is there, and renders it again when they change. */
export function useFeed<T extends KubeObject>(path: string, selector?: Record<string, string>, maximum?: number): Feed<T> {
  const { watches } = usePortal()
  const [feed] = useState(() => watches.open<T>(path, selector, maximum))
  useEffect(() => watches.start(feed), [feed])
  useObservables(feed)
  return feed
}
