import 'fake-indexeddb/auto';
import { ApiProxy } from '@kinvolk/headlamp-plugin/lib';
import { setConfig } from '@kinvolk/headlamp-plugin/lib/redux/configSlice';
import store from '@kinvolk/headlamp-plugin/lib/redux/stores/store';
import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { readFileSync } from 'node:fs';
import type { ReactElement } from 'react';
import { findConnection } from './browser';
import { type Connection, readConnection, writeKubeconfig } from './kubeconfig';
import { parseServer, serverOf } from './paths';
import { findBarriers } from './testing/axe';
import { loadPlugin } from './testing/load';
import { renderPage } from './testing/render';
import { type Sent, startServer } from './testing/server';

// hack/headlamp.sh starts a shard and names its kubeconfig. Without one, there is nothing to test against.
const file = import.meta.env.VITE_KUBECONFIG as string | undefined;
const patient = { timeout: 60_000 };
// A shard can be tested more than once.
const base = `root:headlamp-${Date.now().toString(36)}`;

describe.skipIf(!file)('against a shard', { timeout: 120_000 }, () => {
  let admin: Connection;
  let installation: string;
  let host: string;
  let sent: Sent[];

  /** page is one that the plugin has registered. */
  function page(name: string): ReactElement {
    return (store.getState().routes.routes[`/kcp/${name}`].component as () => ReactElement)();
  }

  /** kubeconfigOf is a kubeconfig of the administrator, or with another token. */
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
    loadPlugin();
    const own = serverOf({ installation, path: base });
    await inBrowser(kubeconfigOf('mine', own));
    await inBrowser(kubeconfigOf('guest', own, 'nobody-token'));
    const clusters = ['mine', 'guest', 'root'].map(name => [
      name,
      { name, auth_type: '', server: admin.server },
    ]);
    store.dispatch(setConfig({ clusters: Object.fromEntries(clusters) }));

    await createWorkspace('root', base.split(':')[1]);
    await createWorkspace(base, 'provider');
    await createWorkspace(base, 'team');
    await createWorkspace(`${base}:team`, 'app');
    const apis = 'apis.kcp.io/v1alpha2';
    await create(`${base}:provider`, 'apis.kcp.io/v1alpha1', 'apiresourceschemas', {
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
    await create(`${base}:provider`, apis, 'apiexports', {
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
    await create(`${base}:team`, apis, 'apibindings', {
      kind: 'APIBinding',
      metadata: { name: 'databases' },
      spec: {
        reference: { export: { path: `${base}:provider`, name: 'databases' } },
        permissionClaims: [
          { ...claims[0], state: 'Accepted', selector: { matchAll: true } },
          { ...claims[1], state: 'Rejected', selector: { matchAll: true } },
        ],
      },
    });
    await inBrowser(kubeconfigOf('provider', serverOf({ installation, path: `${base}:provider` })));
    await inBrowser(kubeconfigOf('team', serverOf({ installation, path: `${base}:team` })));
  }, 180_000);

  it('lists the workspaces below, and those below one of them when it is opened', async () => {
    const user = userEvent.setup();
    renderPage(page('workspaces'), 'mine');
    const team = await screen.findByRole(
      'button',
      { name: `Workspaces below ${base}:team` },
      patient
    );
    expect(
      sent.some(
        ({ url }) =>
          url.startsWith(`${installation}/clusters/${base}:team/`) && url.includes('limit=')
      )
    ).toBe(false);
    expect(team).toHaveAttribute('aria-expanded', 'false');
    await user.click(team);
    const below = await screen.findByRole(
      'list',
      { name: `Workspaces below ${base}:team` },
      patient
    );
    expect(within(below).getByText('app')).toBeInTheDocument();
    expect(within(below).getByText('Ready')).toBeInTheDocument();
    expect(sent.some(({ cluster }) => cluster === `${base}:team@${host}@mine`)).toBe(true);
    // An empty workspace says how to fill it.
    await user.click(
      within(below).getByRole('button', { name: `Workspaces below ${base}:team:app` })
    );
    expect(
      await screen.findByText(
        new RegExp(`no workspaces below ${base}:team:app`),
        undefined,
        patient
      )
    ).toBeInTheDocument();
    expect(await findBarriers()).toEqual([]);
  });

  it('makes a workspace that is opened a cluster, once, with the same credentials', async () => {
    const user = userEvent.setup();
    renderPage(page('workspaces'), 'mine');
    const name = `${base}:team@${host}@mine`;
    await user.click(await screen.findByRole('button', { name: `Open ${base}:team` }, patient));
    await waitFor(async () => expect(await findConnection(name)).toBeDefined(), patient);
    expect(await findConnection(name)).toMatchObject({
      server: `${installation}/clusters/${base}:team`,
      user: admin.user,
    });
    await waitFor(
      () => expect(screen.getByLabelText('address')).toHaveTextContent(`/c/${name}/kcp/workspaces`),
      patient
    );
  });

  it('adds all workspaces of a level', async () => {
    const user = userEvent.setup();
    renderPage(page('workspaces'), 'mine');
    await user.click(await screen.findByRole('button', { name: /^Add these 2 to/ }, patient));
    for (const name of ['provider', 'team']) {
      await waitFor(
        async () => expect(await findConnection(`${base}:${name}@${host}@mine`)).toBeDefined(),
        patient
      );
    }
  });

  it('offers no workspaces for which Headlamp has no credentials', async () => {
    const user = userEvent.setup();
    renderPage(page('workspaces'), 'root');
    await user.click(await screen.findByRole('button', { name: `Open ${base}` }, patient));
    expect(
      await screen.findByText(
        `kubectl ws :${base} && kubectl ws create-context`,
        undefined,
        patient
      )
    ).toBeInTheDocument();
    expect(screen.queryByRole('button', { name: `Workspaces below ${base}` })).toBeNull();
  });

  it('shows exports, and who binds them', async () => {
    const user = userEvent.setup();
    renderPage(page('exports'), 'provider');
    expect(
      await screen.findByText('databases.example.org', undefined, patient)
    ).toBeInTheDocument();
    expect(screen.getByText(/configmaps \(get, list\)/)).toBeInTheDocument();
    await user.click(await screen.findByRole('button', { name: /^List who binds it at/ }, patient));
    expect(await screen.findByRole('cell', { name: 'Bound' }, patient)).toBeInTheDocument();
    expect(screen.getByRole('cell', { name: `${base}:team` })).toBeInTheDocument();
    expect(await findBarriers()).toEqual([]);
  });

  it('shows bindings with the answers to claims, and follows changes', async () => {
    renderPage(page('bindings'), 'team');
    expect(
      await screen.findByText(`${base}:provider:databases`, undefined, patient)
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
    expect(await findBarriers()).toEqual([]);
    // Headlamp watches what it has listed.
    const name = 'setup-changes';
    await ApiProxy.clusterRequest('/apis/apis.kcp.io/v1alpha2/apibindings/databases', {
      cluster: name,
      method: 'PATCH',
      headers: {
        KUBECONFIG: kubeconfigOf(name, serverOf({ installation, path: `${base}:team` })),
        'Content-Type': 'application/json-patch+json',
      },
      body: JSON.stringify([
        { op: 'replace', path: '/spec/permissionClaims/1/state', value: 'Accepted' },
      ]),
    });
    await screen.findByRole('row', { name: /^secrets .*Accepted all objects/ }, patient);
  });

  it('shows shards', async () => {
    renderPage(page('shards'), 'root');
    expect(await screen.findByRole('row', { name: /^root .*https:/ }, patient)).toBeInTheDocument();
    expect(await findBarriers()).toEqual([]);
  });

  it('says where shards are', async () => {
    renderPage(page('shards'), 'team');
    expect(await screen.findByRole('button', { name: 'Open root' }, patient)).toBeInTheDocument();
  });

  it.each([
    ['workspaces', 'workspaces.tenancy.kcp.io'],
    ['exports', 'apiexports.apis.kcp.io'],
    ['bindings', 'apibindings.apis.kcp.io'],
    ['shards', 'shards.core.kcp.io'],
  ])('says to a person without rights what to do to see %s', async (name, resource) => {
    renderPage(page(name), 'guest');
    expect(
      await screen.findByText(`kubectl auth can-i list ${resource}`, undefined, patient)
    ).toBeInTheDocument();
  });
});
