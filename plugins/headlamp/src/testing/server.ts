import { request } from 'node:https';
import WebSocket from 'ws';
import { type Connection, readConnection } from '../kubeconfig';

/** Sent is a request of Headlamp's client, and where it goes. */
export interface Sent {
  cluster: string;
  url: string;
}

interface Credentials {
  token?: string;
  'certificate-authority-data'?: string;
}

/**
 * startServer does what the server of Headlamp does between the browser and a workspace: it sends requests for /clusters/NAME to the server of
 * that cluster, with its credentials. It takes both from the kubeconfig in the request, or from that of the server.
 * All that is sent is recorded. Headlamp's own server is no package that tests could install.
 */
export function startServer(kubeconfig: string): Sent[] {
  const sent: Sent[] = [];
  // Watches bring no kubeconfig: they use that of the requests before.
  const known = new Map<string, Connection>();

  async function handle(input: string | URL | Request, init: RequestInit = {}): Promise<Response> {
    const { pathname, search } = new URL(input.toString());
    if (pathname === '/parseKubeConfig') {
      return Response.json({ clusters: [] });
    }
    const [, name, rest] = /^\/clusters\/([^/]+)(\/.*)$/.exec(pathname) ?? [];
    const cluster = decodeURIComponent(name ?? '');
    const given = new Headers(init.headers).get('KUBECONFIG');
    const connection = readConnection(given ?? kubeconfig, cluster);
    if (!connection) {
      return Response.json({ message: `no cluster ${cluster}` }, { status: 404 });
    }
    const url = connection.server + rest + search;
    known.set(cluster, connection);
    sent.push({ cluster, url });
    return forward(connection, url, init);
  }

  // The server of Headlamp names an origin, without which Kubernetes refuses watches by WebSocket.
  class Watch extends WebSocket {
    constructor(url: string) {
      const { pathname, search } = new URL(url);
      const [, name, rest] = /^\/clusters\/([^/]+)(\/.*)$/.exec(pathname) ?? [];
      const connection = known.get(decodeURIComponent(name ?? ''))!;
      const { ca, headers } = credentials(connection);
      super(connection.server.replace('http', 'ws') + rest + search, [], {
        ca,
        headers,
        origin: connection.server,
      });
    }
  }

  globalThis.fetch = handle;
  globalThis.WebSocket = Watch as unknown as typeof globalThis.WebSocket;
  return sent;
}

function credentials(connection: Connection) {
  const { token } = (connection.user ?? {}) as Credentials;
  const { 'certificate-authority-data': ca } = connection.cluster as Credentials;
  return {
    ca: ca && atob(ca),
    headers: token ? { Authorization: `Bearer ${token}` } : {},
  };
}

function forward(connection: Connection, url: string, init: RequestInit): Promise<Response> {
  const { ca, headers } = credentials(connection);
  const contentType = new Headers(init.headers).get('Content-Type') ?? 'application/json';
  return new Promise((resolve, reject) => {
    const options = {
      ca,
      method: init.method,
      headers: { ...headers, 'Content-Type': contentType },
    };
    const sending = request(url, options, response => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', chunk => (body += chunk));
      response.on('end', () => resolve(new Response(body, { status: response.statusCode })));
    });
    sending.on('error', reject);
    sending.end(init.body as string | undefined);
  });
}
