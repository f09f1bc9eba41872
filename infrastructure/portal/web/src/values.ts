import type { Path } from './errors'
import type { Schema } from './types'

/** Value is what a form edits: JSON, or undefined where nothing was entered. */
export type Value = any

/** setAt returns a copy of a value with another value at a path; undefined removes it. */
export function setAt(value: Value, path: Path, next: Value): Value {
  const [head, ...rest] = path
  if (head === undefined) return next
  const changed = rest.length === 0 ? next : setAt(value?.[head], rest, next)
  if (typeof head === 'number') {
    const list = Array.isArray(value) ? [...value] : []
    list[head] = changed
    return list
  }
  const { [head]: _, ...others } = (value ?? {}) as Record<string, Value>
  if (changed === undefined) return others
  // The place of a key that exists stays.
  return value && head in value ? { ...value, [head]: changed } : { ...others, [head]: changed }
}

/**
 * prune leaves out what is empty: an optional object is sent only if something in it was entered. Maps and lists keep their entries; list
 * elements that are empty are kept, because their place counts.
 */
export function prune(value: Value, schema: Schema | undefined): Value {
  if (value === undefined || value === '') return undefined
  if (Array.isArray(value)) {
    return value.length === 0 ? undefined : value.map((item) => prune(item, schema?.items) ?? (schema?.items?.type === 'object' ? {} : (item ?? null)))
  }
  if (value === null || typeof value !== 'object') return value
  const map = typeof schema?.additionalProperties === 'object' ? schema.additionalProperties : undefined
  const entries = Object.entries(value).flatMap(([key, item]) => {
    const pruned = map && item === '' ? '' : prune(item, schema?.properties?.[key] ?? map)
    return pruned === undefined ? [] : [[key, pruned]]
  })
  return entries.length === 0 ? undefined : Object.fromEntries(entries)
}

export function equal(a: Value, b: Value): boolean {
  if (a === b) return true
  if (typeof a !== 'object' || typeof b !== 'object' || !a || !b || Array.isArray(a) !== Array.isArray(b)) return false
  const keys = Object.keys(a)
  return keys.length === Object.keys(b).length && keys.every((key) => key in b && equal(a[key], b[key]))
}

/** mergePatch returns the JSON merge patch that makes a value another, undefined if they are equal. */
export function mergePatch(before: Value, after: Value): Value {
  if (equal(before, after)) return undefined
  const objects = [before, after].every((value) => value && typeof value === 'object' && !Array.isArray(value))
  if (!objects) return after === undefined ? null : after
  const patch: Record<string, Value> = {}
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const difference = key in after ? mergePatch(before[key], after[key]) : null
    if (difference !== undefined) patch[key] = difference
  }
  return patch
}

/** Widget is how a schema is edited. */
export type Widget = 'choice' | 'text' | 'number' | 'intOrString' | 'boolean' | 'object' | 'map' | 'list' | 'yaml'

const deepest = 12

export function widgetOf(schema: Schema, depth: number): Widget {
  if (depth > deepest) return 'yaml'
  if (schema.enum?.length && schema.enum.every((value) => value === null || typeof value !== 'object')) return 'choice'
  if (schema['x-kubernetes-int-or-string']) return 'intOrString'
  switch (schema.type) {
    case 'string':
      return 'text'
    case 'integer':
    case 'number':
      return 'number'
    case 'boolean':
      return 'boolean'
    case 'array':
      return schema.items ? 'list' : 'yaml'
    case 'object':
      if (schema['x-kubernetes-preserve-unknown-fields']) return 'yaml'
      if (schema.properties && Object.keys(schema.properties).length > 0) return 'object'
      return typeof schema.additionalProperties === 'object' ? 'map' : 'yaml'
    default:
      return 'yaml'
  }
}

/** labelOf is how a form calls a field: its labels from the outermost on. */
export function labelOf(schema: Schema, path: Path): string {
  const labels: string[] = []
  let current: Schema | undefined = schema
  for (const part of path) {
    if (typeof part === 'number') labels.push(`${current?.items?.title ?? labels.pop() ?? ''} ${part + 1}`.trim())
    else labels.push(current?.properties?.[part]?.title ?? part)
    current = typeof part === 'number' ? current?.items : current?.properties?.[part] ?? (typeof current?.additionalProperties === 'object' ? current.additionalProperties : undefined)
  }
  return labels.join(' › ')
}

/** limits says in words what a schema allows. The messages of its rules are for who has broken them. */
export function limits(schema: Schema): string[] {
  const words: string[] = []
  const { minimum: low, maximum: high, minLength: shortest, maxLength: longest, minItems: fewest, maxItems: most } = schema
  if (schema.type === 'integer') words.push('Whole number')
  if (low !== undefined) words.push(`${schema.exclusiveMinimum ? 'more than' : 'at least'} ${low}`)
  if (high !== undefined) words.push(`${schema.exclusiveMaximum ? 'less than' : 'at most'} ${high}`)
  if (schema.multipleOf !== undefined) words.push(`a multiple of ${schema.multipleOf}`)
  if (shortest) words.push(`at least ${shortest} characters`)
  if (longest !== undefined) words.push(`at most ${longest} characters`)
  if (fewest) words.push(`at least ${fewest} entries`)
  if (most !== undefined) words.push(`at most ${most} entries`)
  if (schema.uniqueItems) words.push('no entry twice')
  if (schema.pattern) words.push(`matches ${schema.pattern}`)
  if (schema.format && schema.format !== 'password' && !schema.format.startsWith('int')) words.push(`format ${schema.format}`)
  return words
}

/** widgetPath shortens the path of a field to the part for which a form has a widget. */
export function widgetPath(schema: Schema, path: Path): Path {
  const found: Path = []
  let current: Schema | undefined = schema
  for (const part of path) {
    const widget: Widget = widgetOf(current, found.length)
    const next: Schema | undefined = widget === 'object' ? current.properties?.[part] : widget === 'map' ? (current.additionalProperties as Schema) :
      widget === 'list' && typeof part === 'number' ? current.items : undefined
    if (!next) break
    found.push(part)
    current = next
  }
  return found
}
