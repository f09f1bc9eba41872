import { parseMetrics, type Sample } from '../prometheus'

/** classes are those of requests, with what counts as each. */
export const classes: [string, string][] = [
  ['get', 'reads of one object'],
  ['list', 'lists of objects'],
  ['watch', 'watches that have ended'],
  ['write', 'create, update, patch and delete'],
  ['other', 'discovery, OpenAPI, other paths that are no resource, and connections to subresources'],
]

/** Usage is what a workspace has used in a month, and what it stores. */
export interface Usage {
  month: string
  /** requests are the numbers of requests by class. */
  requests: Record<string, number>
  watchSeconds: number
  receivedBytes: number
  sentBytes: number
  /** stored is missing while the shard does not count it. */
  stored?: { objects: number; bytes: number }
}

/** NoUsageError is an answer without usage: of a server that counts none. */
export class NoUsageError extends Error {}

/** usageOf reads the usage in the latest month, which is the current one by the clock of the shard. */
export function usageOf(text: string): Usage {
  let samples: Sample[]
  try {
    samples = parseMetrics(text)
  } catch (error) {
    throw new NoUsageError((error as Error).message)
  }
  const requests = samples.filter(({ name }) => name === 'atoll_usage_requests_total')
  const month = requests.map(({ labels }) => labels['month'] ?? '').filter((name) => /^\d{4}-\d{2}$/.test(name)).sort().at(-1)
  if (!month) throw new NoUsageError('The answer has no series atoll_usage_requests_total.')
  const sum = (name: string) => samples.reduce((total, sample) => (sample.name === name && sample.labels['month'] === month ? total + sample.value : total), 0)
  const usage: Usage = {
    month,
    requests: Object.fromEntries(classes.map(([name]) => [name, 0])),
    watchSeconds: sum('atoll_usage_watch_seconds_total'),
    receivedBytes: sum('atoll_usage_received_bytes_total'),
    sentBytes: sum('atoll_usage_sent_bytes_total'),
  }
  for (const { labels, value } of requests.filter((sample) => sample.labels['month'] === month)) {
    const known = classes.some(([name]) => name === labels['class']) ? labels['class']! : 'other'
    usage.requests[known]! += value
  }
  const objects = samples.find(({ name }) => name === 'atoll_usage_stored_objects')
  const bytes = samples.find(({ name }) => name === 'atoll_usage_stored_bytes')
  if (objects && bytes) usage.stored = { objects: objects.value, bytes: bytes.value }
  return usage
}

const number = new Intl.NumberFormat('en')

export function count(value: number): string {
  return number.format(value)
}

const byteUnits = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB']

/** size writes a number of bytes: in a unit that people read, and as it is. */
export function size(bytes: number): string {
  const exact = `${count(bytes)} ${bytes === 1 ? 'byte' : 'bytes'}`
  let value = bytes
  let unit = ''
  for (const larger of byteUnits) {
    if (value < 1024) break
    value /= 1024
    unit = larger
  }
  return unit ? `${value.toLocaleString('en', { maximumSignificantDigits: 3 })} ${unit} (${exact})` : exact
}

/** duration writes seconds in the two largest units that they have. */
export function duration(seconds: number): string {
  if (seconds < 60) return `${seconds.toLocaleString('en', { maximumFractionDigits: 1 })} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`
  return `${count(Math.floor(minutes / 60))} h ${minutes % 60} min`
}
