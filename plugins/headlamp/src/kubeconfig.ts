import { load } from 'js-yaml';
import { isSameServer } from './paths';

interface Named {
  name: string;
}

interface Context extends Named {
  context?: {
    cluster?: string;
    user?: string;
    extensions?: (Named & { extension?: { customName?: string } })[];
  };
}

interface Kubeconfig {
  contexts?: Context[];
  clusters?: (Named & { cluster?: { server?: string } })[];
  users?: (Named & { user?: object })[];
}

/** Connection is a server with the credentials for it. */
export interface Connection {
  server: string;
  cluster: object;
  user?: object;
}

/** readConnection finds the connection of a cluster of Headlamp in a kubeconfig, which is in base64. */
export function readConnection(kubeconfig: string, name: string): Connection | undefined {
  const config = load(decode(kubeconfig)) as Kubeconfig | undefined;
  const context = config?.contexts?.find(
    context => context.name === name || customNameOf(context) === name
  )?.context;
  const cluster = config?.clusters?.find(({ name }) => name === context?.cluster)?.cluster;
  if (!cluster?.server) {
    return undefined;
  }
  const user = config?.users?.find(({ name }) => name === context?.user)?.user;
  return { server: cluster.server, cluster, user };
}

/** customNameOf is the name that a person gave to a cluster in Headlamp. */
function customNameOf({ context }: Context): string | undefined {
  return context?.extensions?.find(({ name }) => name === 'headlamp_info')?.extension?.customName;
}

/**
 * writeKubeconfig makes a kubeconfig in base64 for another URL of the server of a connection, with the same credentials. A URL may come from
 * an object that a tenant wrote, so that one of another server is refused: it would get the credentials. It is written as it was read for that
 * comparison, so that others read the same host in it.
 */
export function writeKubeconfig(connection: Connection, name: string, server: string): string {
  if (!isSameServer(connection.server, server)) {
    throw new Error(
      `${server} is not on the server of your kubeconfig, ${connection.server}: it does not get your credentials.`
    );
  }
  const { cluster, user } = connection;
  return encode({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': name,
    contexts: [{ name, context: { cluster: name, ...(user && { user: name }) } }],
    clusters: [{ name, cluster: { ...cluster, server: new URL(server).href } }],
    users: user ? [{ name, user }] : [],
  });
}

/** encode writes JSON, which is YAML, in ASCII: Headlamp reads it by atob, which knows no other characters. */
function encode(config: object): string {
  const text = JSON.stringify(config).replace(
    /[\u0080-\uffff]/g,
    character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  );
  return btoa(text);
}

function decode(base64: string): string {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), byte => byte.charCodeAt(0)));
}
