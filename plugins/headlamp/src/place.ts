import { ApiProxy } from '@kinvolk/headlamp-plugin/lib';
import { findConnection, userID } from './browser';
import { type Connection, writeKubeconfig } from './kubeconfig';
import {
  type Address,
  isSameServer,
  nameOf,
  parseServer,
  serverOf,
  serviceNameOf,
  sourceOf,
} from './paths';

/** Place is a cluster of Headlamp, and what is known of the workspace that it is. */
export interface Place {
  cluster: string;
  /** address is undefined for a cluster that is no workspace, and for one whose server Headlamp does not tell. */
  address?: Address;
  /** connection is undefined where only Headlamp's server has the credentials. Other workspaces are then out of reach. */
  connection?: Connection;
}

/** findPlace is about a cluster and the server that Headlamp's configuration has for it. */
export async function findPlace(cluster: string, server?: string): Promise<Place> {
  const connection = await findConnection(cluster);
  return { cluster, connection, address: parseServer(connection?.server ?? server) };
}

/** Unreachable is the error for a workspace that needs a kubeconfig of its own in Headlamp. */
export class Unreachable extends Error {
  constructor(readonly path: string) {
    super(`Headlamp has no kubeconfig for ${path}.`);
  }
}

/** neighbour is another workspace of the installation of a place. */
export function neighbour(place: Place, path: string): Address | undefined {
  return place.address && { installation: place.address.installation, path };
}

/** canReach says whether requests from a place reach a workspace. */
export function canReach(place: Place, path: string): boolean {
  return place.address?.path === path || (!!place.connection && !!place.address);
}

/** requestIn sends a GET request to a workspace, with the credentials of the place. */
export async function requestIn(place: Place, path: string | undefined, url: string, query = {}) {
  if (path === undefined || path === place.address?.path) {
    return ApiProxy.clusterRequest(
      url,
      { cluster: place.cluster, autoLogoutOnAuthError: false },
      query
    );
  }
  const address = neighbour(place, path);
  if (!place.connection || !address) {
    throw new Unreachable(path);
  }
  const name = nameOf(address, sourceOf(place.cluster, place.address));
  return requestAt(place.connection, name, serverOf(address), url, query);
}

/** requestAtURL sends a GET request to another URL of the server of a place, such as that of a virtual workspace. */
export async function requestAtURL(place: Place, server: string, url: string, query = {}) {
  if (!place.connection) {
    throw new Unreachable(server);
  }
  const name = serviceNameOf(server, sourceOf(place.cluster, place.address));
  return requestAt(place.connection, name, server, url, query);
}

/** canReachURL says whether a URL is on the server of a place, whose credentials are known. */
export function canReachURL(place: Place, server: string): boolean {
  return !!place.connection && isSameServer(place.connection.server, server);
}

/** isServerOf says whether a URL is on the server of a place, which is known without its credentials, too. */
export function isServerOf(place: Place, url: string): boolean {
  return isSameServer(place.connection?.server ?? place.address?.installation ?? '', url);
}

/** requestAt passes the kubeconfig along with the request, as Headlamp does for clusters whose kubeconfig is in the browser. */
async function requestAt(
  connection: Connection,
  name: string,
  server: string,
  url: string,
  query: object
) {
  const headers = {
    KUBECONFIG: writeKubeconfig(connection, name, server),
    'X-HEADLAMP-USER-ID': userID(),
  };
  return ApiProxy.clusterRequest(
    url,
    { cluster: name, headers, autoLogoutOnAuthError: false },
    query as Record<string, string>
  );
}

/** addCluster makes a workspace a cluster of Headlamp, with the credentials of the place, and returns the name of the cluster. */
export async function addCluster(place: Place, path: string): Promise<string> {
  const address = neighbour(place, path);
  if (!place.connection || !address) {
    throw new Unreachable(path);
  }
  const name = nameOf(address, sourceOf(place.cluster, place.address));
  // Headlamp adds a cluster once more that it has.
  if (!(await findConnection(name))) {
    await ApiProxy.setCluster({
      kubeconfig: writeKubeconfig(place.connection, name, serverOf(address)),
    });
  }
  return name;
}
