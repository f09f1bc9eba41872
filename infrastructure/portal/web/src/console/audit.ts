/** AuditEvent is what a shard tells the workspace of a request. */
export interface AuditEvent {
  auditID: string
  stage: string
  stageTimestamp: string
  verb: string
  requestURI: string
  user: { username?: string }
  impersonatedUser?: { username?: string }
  sourceIPs?: string[]
  objectRef?: { resource?: string; apiGroup?: string; subresource?: string; namespace?: string; name?: string }
  responseStatus?: { code?: number }
}

/** NoAuditError is an answer that is no list of events: of a server that keeps none. */
export class NoAuditError extends Error {}

/** eventsOf reads a list of events, and returns the newest first. */
export function eventsOf(text: string): AuditEvent[] {
  let list: { kind?: unknown; items?: unknown }
  try {
    list = JSON.parse(text) as typeof list
  } catch (error) {
    throw new NoAuditError((error as Error).message)
  }
  if (list?.kind !== 'EventList' || !Array.isArray(list.items)) throw new NoAuditError('The answer is no EventList.')
  return (list.items as AuditEvent[]).filter((event) => event && typeof event.stageTimestamp === 'string' && typeof event.verb === 'string').reverse()
}

/** targetOf is the resource of an event as commands write it, or the path of a request for none. */
export function targetOf({ objectRef, requestURI }: AuditEvent): string {
  if (!objectRef?.resource) return requestURI.split('?')[0]!
  const resource = [objectRef.resource, objectRef.apiGroup].filter(Boolean).join('.')
  return objectRef.subresource ? `${resource}/${objectRef.subresource}` : resource
}
