/** Address is where a workspace is: the URL of the installation that serves it, and the path of the workspace there. */
export interface Address {
  installation: string;
  path: string;
}

const segment = '[a-z0-9](?:[-a-z0-9]*[a-z0-9])?';
const path = new RegExp(`^${segment}(?::${segment})*$`);

/** isPath says whether a text is the path of a workspace, such as root:team, or the name of a logical cluster. */
export function isPath(text: string): boolean {
  return path.test(text);
}

/** parseServer reads the server URL of a kubeconfig. It is undefined for URLs of anything but workspaces, such as those of virtual workspaces. */
export function parseServer(server: string | undefined): Address | undefined {
  let url: URL;
  try {
    url = new URL(server ?? '');
  } catch {
    return undefined;
  }
  const [, prefix, name] = /^(.*)\/clusters\/([^/]+)\/?$/.exec(url.pathname) ?? [];
  if (name === undefined || !isPath(decoded(name)) || `${prefix}/`.includes('/services/')) {
    return undefined;
  }
  return { installation: url.origin + prefix, path: decoded(name) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}

/** serverOf is the server URL of a workspace. */
export function serverOf({ installation, path }: Address): string {
  return `${installation}/clusters/${path}`;
}

/**
 * nameOf is the name of a workspace among Headlamp's clusters. It has the host, because each installation has a workspace root, and the cluster
 * whose credentials it has, because a person may have several: opening a workspace from one of them does not use those of another.
 */
export function nameOf(address: Address, source: string): string {
  return prefixOf(address) + source;
}

/** sourceOf is the cluster whose credentials a cluster has: itself, or the one from which it was opened. */
export function sourceOf(cluster: string, address: Address | undefined): string {
  const prefix = address && prefixOf(address);
  return prefix && cluster.startsWith(prefix) ? cluster.slice(prefix.length) : cluster;
}

function prefixOf({ installation, path }: Address): string {
  return `${path}@${new URL(installation).host}@`;
}

/** serviceNameOf is the name of a virtual workspace among Headlamp's clusters. A tenant may have written its URL: no workspace has such a name. */
export function serviceNameOf(server: string, source: string): string {
  const { pathname, host } = new URL(server);
  const segments = pathname.split(/[^-\w:]+/).filter(Boolean);
  return `services.${segments.join('.')}@${host}@${source}`;
}

/** parentsOf are the workspaces above one, from the top. */
export function parentsOf(path: string): string[] {
  const parts = path.split(':');
  const parents = parts.slice(1).map((_, index) => parts.slice(0, index + 1).join(':'));
  // These are prefixes of paths, and no workspaces.
  return parents.filter(parent => parent !== 'user' && parent !== 'system');
}

/** childOf is the path of a workspace below another. */
export function childOf(path: string, name: string): string {
  return `${path}:${name}`;
}

/** isSameServer says whether two URLs have the same scheme, host and port. Credentials for one are sent to the other only then. */
export function isSameServer(a: string, b: string): boolean {
  try {
    return new URL(a).origin === new URL(b).origin;
  } catch {
    return false;
  }
}
