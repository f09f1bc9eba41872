import 'fake-indexeddb/auto';
import { readFileSync } from 'node:fs';
import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import store from '@kinvolk/headlamp-plugin/lib/redux/stores/store';
import { setConfig } from '@kinvolk/headlamp-plugin/lib/redux/configSlice';
import { ApiProxy } from '@kinvolk/headlamp-plugin/lib';
import './index';
import { BindingsPage } from './bindings';
import { findConnection } from './browser';
import { ExportsPage } from './exports';
import { type Connection, readConnection, writeKubeconfig } from './kubeconfig';
import { parseServer, serverOf } from './paths';
import { ShardsPage } from './shards';
import { renderPage } from './testing/render';
import { type Sent, startServer } from './testing/server';
import { WorkspacesPage } from './tree';

// hack/headlamp.sh starts a shard and names its kubeconfig. Without one, there is nothing to test against.
const file = import.meta.env.VITE_KUBECONFIG as string | undefined;
const patient = { timeout: 60_000 };

describe.skipIf(!file)('against a shard', { timeout: 120_000 }, () => {
  let admin: Connection;
  let installation: string;
  let host: string;
  let sent: Sent[];

  /** connect makes workspaces known to Headlamp's server, as contexts of its kubeconfig. */
  function kubeconfigOf(name: string, server: string, token?: string): string {
    return writeKubeconfig(token ? { ...admin, user: { token } } : admin, name, server);
  }

  async function create(path: string, group: string, resource: string, object: object) {
    const name = `setup-${path}`;
    const kubeconfig = kubeconfigOf(name, serverOf({ installation, path }));
    const api = group.includes('/') ? `apis/${group}` : `api/${group}`;
    return ApiProxy.clusterRequest(`/${api}/${resource}`, {
      cluster: name,
      method: 'POST',
      headers: { KUBECONFIG: kubeconfig, 'Content-Type': 'application/json' },
      body: JSON.stringify({ apiVersion: group, ...object }),
    });
  }

  async function createWorkspace(parent: string, name: string) {
    await create(parent, 'tenancy.kcp.io/v1alpha1', 'workspaces', {
      kind: 'Workspace',
      metadata: { name },
    });
    const cluster = `setup-${parent}`;
    const headers = { KUBECONFIG: kubeconfigOf(cluster, serverOf({ installation, path: parent })) };
    await waitFor(async () => {
      const workspace = await ApiProxy.clusterRequest(
        `/apis/tenancy.kcp.io/v1alpha1/workspaces/${name}`,
        { cluster, headers }
      );
      expect(workspace.status?.phase).toBe('Ready');
    }, patient);
  }

  /** inBrowser is what Headlamp does when a person loads a kubeconfig. */
  function inBrowser(kubeconfig: string) {
    return ApiProxy.setCluster({ kubeconfig });
  }

  beforeAll(async () => {
    const kubeconfig = btoa(readFileSync(file!, 'utf8'));
    admin = readConnection(kubeconfig, 'root')!;
    installation = parseServer(admin.server)!.installation;
    host = new URL(installation).host;
    sent = startServer(kubeconfig);
    await inBrowser(kubeconfigOf('mine', admin.server));
    await inBrowser(kubeconfigOf('guest', admin.server, 'nobody-token'));
    const clusters = ['mine', 'guest', 'root'].map(name => [
      name,
      { name, auth_type: '', server: admin.server },
    ]);
    store.dispatch(setConfig({ clusters: Object.fromEntries(clusters) }));

    await createWorkspace('root', 'provider');
    await createWorkspace('root', 'team');
    await createWorkspace('root:team', 'app');
    const apis = 'apis.kcp.io/v1alpha2';
    await create('root:provider', 'apis.kcp.io/v1alpha1', 'apiresourceschemas', {
      kind: 'APIResourceSchema',
      metadata: { name: 'v1.databases.example.org' },
      spec: {
        group: 'example.org',
        names: {
          kind: 'Database',
          listKind: 'DatabaseList',
          plural: 'databases',
          singular: 'database',
        },
        scope: 'Namespaced',
        versions: [{ name: 'v1', served: true, storage: true, schema: { type: 'object' } }],
      },
    });
    const claims = ['configmaps', 'secrets', 'serviceaccounts'].map(resource => ({
      group: '',
      resource,
      verbs: ['get', 'list'],
    }));
    await create('root:provider', apis, 'apiexports', {
      kind: 'APIExport',
      metadata: { name: 'databases' },
      spec: {
        resources: [
          {
            name: 'databases',
            group: 'example.org',
            schema: 'v1.databases.example.org',
            storage: { crd: {} },
          },
        ],
        permissionClaims: claims,
      },
    });
    await create('root:team', apis, 'apibindings', {
      kind: 'APIBinding',
      metadata: { name: 'databases' },
      spec: {
        reference: { export: { path: 'root:provider', name: 'databases' } },
        permissionClaims: [
          { ...claims[0], state: 'Accepted', selector: { matchAll: true } },
          { ...claims[1], state: 'Rejected', selector: { matchAll: true } },
        ],
      },
    });
    await inBrowser(kubeconfigOf('provider', serverOf({ installation, path: 'root:provider' })));
    await inBrowser(kubeconfigOf('team', serverOf({ installation, path: 'root:team' })));
  }, 180_000);

  it('lists the workspaces below, and those below one of them when it is opened', async () => {
    const user = userEvent.setup();
    renderPage(<WorkspacesPage />, 'mine');
    const team = await screen.findByRole('button', { name: 'Workspaces below root:team' }, patient);
    expect(
      sent.some(
        ({ url }) => url.startsWith(`${installation}/clusters/root:team/`) && url.includes('limit=')
      )
    ).toBe(false);
    expect(team).toHaveAttribute('aria-expanded', 'false');
    await user.click(team);
    const below = await screen.findByRole('list', { name: 'Workspaces below root:team' }, patient);
    expect(within(below).getByText('app')).toBeInTheDocument();
    expect(within(below).getByText('Ready')).toBeInTheDocument();
    expect(sent.some(({ cluster }) => cluster === `root:team@${host}`)).toBe(true);
    // An empty workspace says how to fill it.
    await user.click(within(below).getByRole('button', { name: 'Workspaces below root:team:app' }));
    expect(
      await screen.findByText(/no workspaces below root:team:app/, undefined, patient)
    ).toBeInTheDocument();
  });

  it('makes a workspace that is opened a cluster, once, with the same credentials', async () => {
    const user = userEvent.setup();
    renderPage(<WorkspacesPage />, 'mine');
    const name = `root:team@${host}`;
    await user.click(await screen.findByRole('button', { name: 'Open root:team' }, patient));
    await waitFor(async () => expect(await findConnection(name)).toBeDefined(), patient);
    expect(await findConnection(name)).toMatchObject({
      server: `${installation}/clusters/root:team`,
      user: admin.user,
    });
  });

  it('offers no workspaces for which Headlamp has no credentials', async () => {
    const user = userEvent.setup();
    renderPage(<WorkspacesPage />, 'root');
    await user.click(await screen.findByRole('button', { name: 'Open root:team' }, patient));
    expect(
      await screen.findByText(
        'kubectl ws :root:team && kubectl ws create-context',
        undefined,
        patient
      )
    ).toBeInTheDocument();
    expect(screen.queryByRole('button', { name: 'Workspaces below root:team' })).toBeNull();
  });

  it('shows exports, and who binds them', async () => {
    const user = userEvent.setup();
    renderPage(<ExportsPage />, 'provider');
    expect(
      await screen.findByText('databases.example.org', undefined, patient)
    ).toBeInTheDocument();
    expect(screen.getByText(/configmaps \(get, list\)/)).toBeInTheDocument();
    await user.click(await screen.findByRole('button', { name: /^List who binds it at/ }, patient));
    expect(await screen.findByRole('cell', { name: 'Bound' }, patient)).toBeInTheDocument();
    expect(screen.getByRole('cell', { name: 'root:team' })).toBeInTheDocument();
  });

  it('shows bindings with the answers to claims, and follows changes', async () => {
    renderPage(<BindingsPage />, 'team');
    expect(
      await screen.findByText('root:provider:databases', undefined, patient)
    ).toBeInTheDocument();
    for (const [resource, answer] of [
      ['configmaps', 'Accepted'],
      ['secrets', 'Rejected'],
      ['serviceaccounts', 'Not answered'],
    ]) {
      await waitFor(
        () =>
          expect(
            screen.getByRole('row', { name: new RegExp(`^${resource} .*${answer}`) })
          ).toBeInTheDocument(),
        patient
      );
    }
  });

  it('shows shards', async () => {
    renderPage(<ShardsPage />, 'mine');
    expect(await screen.findByRole('row', { name: /^root .*https:/ }, patient)).toBeInTheDocument();
  });

  it('says where shards are', async () => {
    renderPage(<ShardsPage />, 'team');
    expect(await screen.findByRole('button', { name: 'Open root' }, patient)).toBeInTheDocument();
  });

  it.each([
    ['workspaces', <WorkspacesPage key="w" />, 'workspaces.tenancy.kcp.io'],
    ['exports', <ExportsPage key="e" />, 'apiexports.apis.kcp.io'],
    ['bindings', <BindingsPage key="b" />, 'apibindings.apis.kcp.io'],
    ['shards', <ShardsPage key="s" />, 'shards.core.kcp.io'],
  ])('says to a person without rights what to do to see %s', async (_, page, resource) => {
    renderPage(page, 'guest');
    expect(
      await screen.findByText(`kubectl auth can-i list ${resource}`, undefined, patient)
    ).toBeInTheDocument();
  });
});
