import { Failure, Loading } from '../components/parts'
import type { Feed } from '../feed'

/** Unknown says why there is nothing to show of a feed, or nothing current: what is shown with it was there before. */
export function Unknown({ feed, what }: { feed: Feed<any>; what: string }) {
  if (feed.state === 'failed') return <Failure kind="info" error={feed.error} what={what} where="">{feed.items.size > 0 && ' Below is what was there last.'}</Failure>
  return feed.state === 'loading' || (feed.state === 'reconnecting' && feed.items.size === 0) ? <Loading count={2} /> : null
}

/** Facts are names with values; those without a value are left out. */
export function Facts({ facts }: { facts: [string, preact.ComponentChildren][] }) {
  return <dl>{facts.filter(([, value]) => value).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
}

/** resourceOf names a resource as kubectl does. */
export function resourceOf({ group, resource }: { group?: string; resource: string }): string {
  return group ? `${resource}.${group}` : resource
}
