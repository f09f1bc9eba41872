import { screen, within } from '@testing-library/react';
import { Binding } from './bindings';
import { Export } from './exports';
import { Listed } from './parts';
import { ShardTable } from './shards';
import { renderPage } from './testing/render';

// Processors may have other things to do.
vi.setConfig({ testTimeout: 60_000 });

const conditions = [
  { type: 'Ready', status: 'False', reason: 'Waiting', message: 'for the provider' },
];

it('shows a binding with its claims and the whole message of a condition', () => {
  const claim = { group: '', resource: 'configmaps', verbs: ['get', 'delete'] };
  renderPage(
    <Binding
      binding={{
        metadata: { name: 'databases' },
        spec: {
          reference: { export: { path: 'root:provider', name: 'databases' } },
          permissionClaims: [
            { ...claim, verbs: ['get'], state: 'Accepted', selector: { matchAll: true } },
          ],
        },
        status: { exportPermissionClaims: [claim], conditions },
      }}
    />,
    'root'
  );
  expect(screen.getByText('root:provider:databases')).toBeInTheDocument();
  // A binding without a phase is new.
  expect(screen.getByText('Binding')).toBeInTheDocument();
  const row = screen.getByRole('row', { name: /^configmaps/ });
  expect(within(row).getByText('Accepted in part')).toBeInTheDocument();
  expect(within(row).getByText('all objects; not accepted: delete')).toBeInTheDocument();
  expect(screen.getByText('Waiting: for the provider')).toBeInTheDocument();
});

it.each([
  ['whose URL is on the server', 'https://h:6443/services/apiexport/2x9c1k/databases', 1],
  ['whose URL is on another server', 'https://other:6443/services/apiexport/2x9c1k/databases', 0],
  ['whose URL no shell may take', "https://h:6443/'; rm -rf ~ #", 0],
])('has a command for the consumers of an export %s', (_, url, commands) => {
  const address = { installation: 'https://h:6443', path: 'root' };
  const place = { cluster: 'root', address };
  const exported = { metadata: { name: 'databases' } };
  renderPage(<Export exported={exported} urls={[url]} place={place} />, 'root');
  expect(screen.queryByRole('button', { name: /^List who binds it/ })).toBeNull();
  expect(screen.queryAllByText(/^kubectl --server/)).toHaveLength(commands);
  const warnings = url.startsWith('https://other') ? 1 : 0;
  expect(screen.queryAllByText(/do not send credentials to it/)).toHaveLength(warnings);
});

it('says of an export without URLs why there are none', () => {
  renderPage(<Export exported={{ metadata: { name: 'databases' } }} urls={[]} />, 'root');
  expect(screen.getByText(/nobody binds it, or there is no slice/)).toBeInTheDocument();
});

it('shows shards with the reason of what is wrong', () => {
  const shard = (name: string, status: object) => ({
    metadata: { name, labels: { region: 'north' } },
    spec: { baseURL: `https://${name}:6443` },
    status,
  });
  renderPage(
    <ShardTable
      shards={[
        shard('alpha', {
          load: { workspaces: '12' },
          capacity: { workspaces: '100' },
          conditions: [{ type: 'Ready', status: 'True' }],
        }),
        shard('beta', {
          conditions: [{ type: 'Schedulable', status: 'False', reason: 'Cordoned' }],
        }),
      ]}
    />,
    'root'
  );
  const alpha = screen.getByRole('row', {
    name: /^alpha north Yes Not reported 12 of 100 workspaces/,
  });
  expect(within(alpha).getByText('https://alpha:6443')).toBeInTheDocument();
  expect(
    screen.getByRole('row', { name: /^beta north Not reported No\s?Cordoned/ })
  ).toBeInTheDocument();
});

it('tells a list that is loading, empty, and refused apart', () => {
  const list = (items: unknown[] | null, error?: unknown) => (
    <Listed
      items={items}
      error={error}
      what="list things"
      resource="things.example.org"
      empty="There are no things."
    >
      Things
    </Listed>
  );
  const { unmount } = renderPage(list(null), 'root');
  expect(screen.getByRole('progressbar')).toBeInTheDocument();
  unmount();
  const empty = renderPage(list([]), 'root');
  expect(screen.getByText('There are no things.')).toBeInTheDocument();
  empty.unmount();
  renderPage(list([], Object.assign(new Error(), { status: 403 })), 'root');
  expect(screen.getByText('kubectl auth can-i list things.example.org')).toBeInTheDocument();
  expect(screen.queryByText('There are no things.')).toBeNull();
});
