import { registerRoute, registerSidebarEntry } from '@kinvolk/headlamp-plugin/lib';
import type { ComponentType } from 'react';
import { BindingsPage } from './bindings';
import { ExportsPage } from './exports';
import { tree } from './icons';
import { ShardsPage } from './shards';
import { WorkspacesPage } from './tree';

const pages: { name: string; url: string; label: string; page: ComponentType }[] = [
  { name: 'kcpWorkspaces', url: '/kcp/workspaces', label: 'Workspaces', page: WorkspacesPage },
  { name: 'kcpExports', url: '/kcp/exports', label: 'API exports', page: ExportsPage },
  { name: 'kcpBindings', url: '/kcp/bindings', label: 'API bindings', page: BindingsPage },
  { name: 'kcpShards', url: '/kcp/shards', label: 'Shards', page: ShardsPage },
];

registerSidebarEntry({
  name: 'kcp',
  parent: null,
  label: 'Workspaces',
  icon: tree,
  url: pages[0].url,
});

for (const { name, url, label, page: Page } of pages) {
  registerSidebarEntry({ parent: 'kcp', name, label, url });
  registerRoute({ path: url, name, sidebar: name, exact: true, component: () => <Page /> });
}
