import 'fake-indexeddb/auto';
import { answeredClaims } from './claims';
import { explain } from './errors';
import { isPlain, urlsOf } from './exports';
import { readConnection, writeKubeconfig } from './kubeconfig';
import {
  childOf,
  isSameServer,
  nameOf,
  parentsOf,
  parseServer,
  serverOf,
  serviceNameOf,
  sourceOf,
} from './paths';
import { Unreachable } from './place';
import type { APIBinding } from './types';

describe('a server URL is a workspace', () => {
  it.each([
    [
      'with a path',
      'https://kcp.example.com:6443/clusters/root:team',
      'https://kcp.example.com:6443',
      'root:team',
    ],
    [
      'with a slash at the end',
      'https://kcp.example.com/clusters/root/',
      'https://kcp.example.com',
      'root',
    ],
    ['with the name of a logical cluster', 'https://h/clusters/2x9c1k', 'https://h', '2x9c1k'],
    ['with an escaped colon', 'https://h/clusters/root%3Ateam', 'https://h', 'root:team'],
    ['below a prefix', 'https://h/kcp/clusters/root', 'https://h/kcp', 'root'],
  ])('%s', (_, server, installation, path) => {
    expect(parseServer(server)).toEqual({ installation, path });
  });

  it.each([
    ['of an ordinary cluster', 'https://h:6443'],
    ['of all workspaces', 'https://h/clusters/*'],
    ['of a virtual workspace', 'https://h/services/apiexport/root/x/clusters/root'],
    ['that is malformed', 'h/clusters/root'],
    ['with a broken escape', 'https://h/clusters/%E0%A4%A'],
    ['that Headlamp does not tell', undefined],
  ])('but not one %s', (_, server) => {
    expect(parseServer(server)).toBeUndefined();
  });
});

it('names workspaces so that those of two installations, or with two credentials, differ', () => {
  const team = { installation: 'https://a.example.com:6443', path: 'root:team' };
  expect(nameOf(team, 'acme')).toBe('root:team@a.example.com:6443@acme');
  expect(nameOf(team, 'guest')).toBe('root:team@a.example.com:6443@guest');
  expect(nameOf({ ...team, installation: 'https://b.example.com' }, 'acme')).toBe(
    'root:team@b.example.com@acme'
  );
  // One that was opened from another has the credentials of the first.
  expect(sourceOf('ada@acme', team)).toBe('ada@acme');
  expect(sourceOf(nameOf(team, 'ada@acme'), team)).toBe('ada@acme');
  expect(sourceOf('acme', undefined)).toBe('acme');
  expect(serviceNameOf('https://h/root:team', 'acme')).toBe('services.root:team@h@acme');
  expect(serverOf(team)).toBe('https://a.example.com:6443/clusters/root:team');
});

it('knows the workspaces above one', () => {
  expect(parentsOf('root')).toEqual([]);
  expect(parentsOf('root:team:app')).toEqual(['root', 'root:team']);
  expect(parentsOf('user:ada:app')).toEqual(['user:ada']);
  expect(childOf('root', 'team')).toBe('root:team');
});

const loaded = `
apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: "https://h:6443/clusters/root", certificate-authority-data: Q0E=}
users:
- name: ädä
  user: {token: geheim-ß}
contexts:
- name: root
  context: {cluster: c, user: ädä, namespace: x}
- name: renamed
  context: {cluster: c, extensions: [{name: headlamp_info, extension: {customName: mine}}]}
- name: dangling
  context: {cluster: gone}
`;
const base64 = btoa(String.fromCharCode(...new TextEncoder().encode(loaded)));

describe('a kubeconfig in the browser', () => {
  it('has connections by context and by the name that a person gave', () => {
    const cluster = {
      server: 'https://h:6443/clusters/root',
      'certificate-authority-data': 'Q0E=',
    };
    expect(readConnection(base64, 'root')).toEqual({
      server: cluster.server,
      cluster,
      user: { token: 'geheim-ß' },
    });
    expect(readConnection(base64, 'mine')).toEqual({
      server: cluster.server,
      cluster,
      user: undefined,
    });
    expect(readConnection(base64, 'dangling')).toBeUndefined();
    expect(readConnection(base64, 'other')).toBeUndefined();
    expect(readConnection('', 'root')).toBeUndefined();
  });

  it('becomes one for another workspace with the same credentials', () => {
    const connection = readConnection(base64, 'root')!;
    const server = 'https://h:6443/clusters/root:team';
    const written = writeKubeconfig(connection, 'team', server);
    expect(readConnection(written, 'team')).toEqual({
      server,
      cluster: { server, 'certificate-authority-data': 'Q0E=' },
      user: { token: 'geheim-ß' },
    });
    const unusual = writeKubeconfig(connection, 'team', 'HTTPS://H:6443/clusters/root:team');
    expect(readConnection(unusual, 'team')?.server).toBe(server);
    // Headlamp reads kubeconfigs by atob alone.
    expect(atob(written)).toMatch(/^[\x20-\x7e]+$/);
  });

  it.each([
    ['another host', 'https://evil.example.com:6443/clusters/root'],
    ['another port', 'https://h:6444/clusters/root'],
    ['another scheme', 'http://h:6443/clusters/root'],
    ['a host in the user part', 'https://h:6443@evil.example.com/clusters/root'],
    ['no URL', 'h'],
  ])('gives its credentials to no other server: %s', (_, server) => {
    const connection = readConnection(base64, 'root')!;
    expect(isSameServer(connection.server, server)).toBe(false);
    expect(() => writeKubeconfig(connection, 'x', server)).toThrow(/does not get your credentials/);
  });
});

it('tells the answers to claims apart', () => {
  const claim = (resource: string, ...verbs: string[]) => ({ group: '', resource, verbs });
  const accepted = { state: 'Accepted', selector: { matchAll: true } };
  const binding: APIBinding = {
    metadata: { name: 'b' },
    spec: {
      reference: {},
      permissionClaims: [
        { ...claim('applied', '*'), ...accepted },
        { ...claim('waiting', 'get'), ...accepted, selector: { matchLabels: { a: 'b' } } },
        { ...claim('partly', 'get'), ...accepted },
        { ...claim('rejected', 'get'), state: 'Rejected' },
        { ...claim('applied', 'get'), identityHash: 'of another export', state: 'Rejected' },
        { ...claim('withdrawn', 'get'), ...accepted },
      ],
    },
    status: {
      exportPermissionClaims: [
        claim('applied', 'get', 'list'),
        claim('waiting', 'get'),
        claim('partly', 'get', 'delete'),
        claim('rejected', 'get'),
        { ...claim('open', 'get'), group: 'example.org' },
      ],
      appliedPermissionClaims: [claim('applied', 'get', 'list'), claim('partly', 'get')],
    },
  };
  expect(
    answeredClaims(binding).map(({ resource, answer, refused, selects }) => [
      resource,
      answer,
      refused,
      selects,
    ])
  ).toEqual([
    ['applied', 'Accepted', [], 'all objects'],
    ['waiting', 'Waits to be applied', [], 'some objects'],
    ['partly', 'Accepted in part', ['delete'], 'all objects'],
    ['rejected', 'Rejected', [], ''],
    ['open.example.org', 'Not answered', [], ''],
  ]);
});

it.each([
  [401, /credentials/],
  [403, /may not list things/],
  [404, /does not serve things.example.org/],
  [408, /cannot be reached/],
  [502, /cannot be reached/],
  [500, /a message/],
])('says for status %s what to do next', (status, text) => {
  const said = explain(
    Object.assign(new Error('a message'), { status }),
    'list things',
    'things.example.org'
  );
  expect(said.text).toMatch(text);
  expect(said.next).toMatch(/^[A-Z].*[.:]$/);
});

it('has a command for a workspace that is out of reach', () => {
  expect(explain(new Unreachable('root:team'), 'open the workspace', '').command).toBe(
    'kubectl ws :root:team && kubectl ws create-context'
  );
});

it('finds the URLs of an export in slices of its workspace', () => {
  const slice = (name: string, path: string | undefined, ...urls: string[]) => ({
    metadata: { name: 's', annotations: { 'kcp.io/cluster': '2x9c1k' } },
    spec: { export: { name, path } },
    status: { endpoints: urls.map(url => ({ url })) },
  });
  const slices = [
    slice('mine', '2x9c1k', 'https://h/1', 'https://h/2'),
    slice('mine', 'root:team', 'https://h/3'),
    slice('mine', undefined, 'https://h/1'),
    slice('mine', 'root:other', 'https://h/4'),
    slice('other', 'root:team', 'https://h/5'),
  ];
  expect(urlsOf('mine', 'root:team', slices)).toEqual([
    'https://h/1',
    'https://h/2',
    'https://h/3',
  ]);
});

it.each([
  ['https://h:6443/services/apiexport/2x9c1k/databases', true],
  ["https://h/'; rm -rf ~ #", false],
  ['http://h/x', false],
])('takes %s for a shell: %s', (url, plain) => {
  expect(isPlain(url)).toBe(plain);
});
