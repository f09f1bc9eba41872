import { dump, load } from 'js-yaml'
import type { KubeObject } from './types'

export function toYAML(value: unknown): string {
  return value === undefined ? '' : dump(value, { lineWidth: 120, noRefs: true })
}

/** fromYAML reads one document; it throws what is to be shown. */
export function fromYAML(text: string): any {
  if (!text.trim()) return undefined
  try {
    return load(text)
  } catch (error) {
    const { reason, mark } = error as { reason?: string; mark?: { line: number; column: number } }
    throw new Error(`This is no valid YAML: ${reason ?? (error as Error).message}${mark ? ` (line ${mark.line + 1}, column ${mark.column + 1})` : ''}.`)
  }
}

/** readable returns an object without what only servers need. */
export function readable<T extends KubeObject>(object: T): T {
  const { managedFields: _, ...metadata } = object.metadata
  return { ...object, metadata }
}
