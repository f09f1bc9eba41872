import { dump, load } from 'js-yaml'
import type { KubeObject, ObjectMeta } from './types'

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

/** lastApplied is where "kubectl apply" keeps the whole object once more. */
const lastApplied = 'kubectl.kubernetes.io/last-applied-configuration'

/** readableAnnotations are those that people write and read; undefined if there is none. */
export function readableAnnotations({ annotations = {} }: ObjectMeta): Record<string, string> | undefined {
  const { [lastApplied]: _, ...others } = annotations
  return Object.keys(others).length > 0 ? others : undefined
}

/** readable returns an object without what only programs need. */
export function readable<T extends KubeObject>(object: T): T {
  const { managedFields: _, annotations: __, ...metadata } = object.metadata
  const annotations = readableAnnotations(object.metadata)
  return { ...object, metadata: { ...metadata, ...(annotations ? { annotations } : {}) } }
}
