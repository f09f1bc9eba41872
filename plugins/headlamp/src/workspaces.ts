import { type Place, requestAtURL, requestIn } from './place';
import type { APIBinding, Workspace } from './types';

/** pageSize is how many objects a request lists. */
export const pageSize = 500;

/** Page is a part of a list; next is the token for what follows. */
export interface Page<T> {
  items: T[];
  next?: string;
}

interface List<T> {
  metadata: { continue?: string };
  items: T[];
}

/** listWorkspaces lists the workspaces below one; path is undefined for that of the place, where its path is not known. */
export async function listWorkspaces(
  place: Place,
  path: string | undefined,
  next?: string
): Promise<Page<Workspace>> {
  const url = '/apis/tenancy.kcp.io/v1alpha1/workspaces';
  return toPage(await requestIn(place, path, url, query(next)));
}

/** Consumer is a binding of an export, and the logical cluster with the workspace that has it. */
export interface Consumer {
  cluster: string;
  path: string;
  binding: string;
  phase: string;
}

/** listConsumers lists the bindings of an export at a URL of one of its endpoint slices, which has those of a shard. */
export async function listConsumers(
  place: Place,
  endpoint: string,
  next?: string
): Promise<Page<Consumer>> {
  const url = '/apis/apis.kcp.io/v1alpha2/apibindings';
  const page = toPage<APIBinding>(
    await requestAtURL(place, `${endpoint.replace(/\/$/, '')}/clusters/*`, url, query(next))
  );
  return { ...page, items: page.items.map(toConsumer) };
}

function toConsumer({ metadata, status }: APIBinding): Consumer {
  const annotations = metadata.annotations ?? {};
  return {
    cluster: annotations['kcp.io/cluster'] ?? '',
    path: annotations['kcp.io/path'] ?? '',
    binding: metadata.name,
    phase: status?.phase || 'Binding',
  };
}

function query(next?: string): Record<string, string> {
  return { limit: String(pageSize), ...(next && { continue: next }) };
}

function toPage<T>({ metadata, items }: List<T>): Page<T> {
  return { items, next: metadata.continue || undefined };
}
