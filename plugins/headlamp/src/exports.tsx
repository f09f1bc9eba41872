import { CommonComponents } from '@kinvolk/headlamp-plugin/lib';
import { Button, Typography } from '@mui/material';
import { useCallback, useState } from 'react';
import { resourceOf } from './claims';
import { usePages, usePlace } from './hooks';
import { Command, Conditions, Failure, Listed, State } from './parts';
import { canReachURL, isServerOf, type Place } from './place';
import { APIExport, APIExportEndpointSlice } from './resources';
import type * as types from './types';
import { type Consumer, listConsumers } from './workspaces';

const { Loader, NameValueTable, SectionBox, SimpleTable } = CommonComponents;
const resource = 'apiexports.apis.kcp.io';

/** ExportsPage has the APIs that a workspace offers to others, and who uses them. */
export function ExportsPage() {
  const { place } = usePlace();
  const { items, error } = APIExport.useList();
  const slices = APIExportEndpointSlice.useList();
  return (
    <>
      <SectionBox title="API exports">
        <Typography color="text.secondary" sx={{ mb: 1 }}>
          What the workspace offers to others, which bind it.
        </Typography>
        <Listed
          items={items}
          error={error}
          what="list API exports"
          resource={resource}
          empty="No API is exported here. An APIExport offers resources to other workspaces; what this one uses of others is at API bindings."
        >
          {null}
        </Listed>
        {!!slices.error && (
          <Failure
            error={slices.error}
            what="list endpoint slices"
            resource="apiexportendpointslices.apis.kcp.io"
          />
        )}
      </SectionBox>
      {!error &&
        items?.map(({ object }) => (
          <Export
            key={object.metadata.name}
            exported={object}
            urls={urlsOf(
              object.metadata.name,
              place?.address?.path,
              slices.items?.map(({ object }) => object) ?? []
            )}
            place={place}
          />
        ))}
    </>
  );
}

/** urlsOf are the URLs of an export. A slice may be that of an export of the same name elsewhere: its path, or its logical cluster, tells. */
export function urlsOf(
  name: string,
  path: string | undefined,
  slices: types.EndpointSlice[]
): string[] {
  const own = slices.filter(({ metadata, spec }) => {
    const here = [undefined, path, metadata.annotations?.['kcp.io/cluster']];
    return spec.export.name === name && here.includes(spec.export.path || undefined);
  });
  return [...new Set(own.flatMap(({ status }) => status?.endpoints?.map(({ url }) => url) ?? []))];
}

/** Export has one export. */
export function Export(props: { exported: types.APIExport; urls: string[]; place?: Place }) {
  const { exported, urls, place } = props;
  const { metadata, spec, status } = exported;
  const resources = spec?.resources?.map(({ group, name }) =>
    resourceOf({ group, resource: name })
  );
  const claims = spec?.permissionClaims?.map(
    claim => `${resourceOf(claim)} (${claim.verbs.join(', ')})`
  );
  return (
    <SectionBox title={metadata.name} headerProps={{ headerStyle: 'subsection' }}>
      <NameValueTable
        rows={[
          { name: 'Resources', value: resources?.join(', ') || 'none' },
          { name: 'Identity', value: status?.identityHash || 'none yet' },
          {
            name: 'Permission claims',
            value: claims?.join('; ') || 'none beyond its own resources',
          },
        ]}
      />
      <Typography variant="h6" component="h2">
        Who binds it
      </Typography>
      {urls.length === 0 && (
        <Typography color="text.secondary">
          No endpoint slice of the export has a URL. It has one for each shard with a workspace that
          binds the export, so that nobody binds it, or there is no slice.
        </Typography>
      )}
      {place && urls.map(url => <Consumers key={url} place={place} url={url} />)}
      <Typography variant="h6" component="h2">
        Conditions
      </Typography>
      <Conditions conditions={status?.conditions} />
    </SectionBox>
  );
}

/** consumers is the command that lists the bindings of an export at a URL. */
function consumers(url: string): string {
  const columns =
    'WORKSPACE:.metadata.annotations.kcp\\.io/cluster,NAME:.metadata.name,PHASE:.status.phase';
  return `kubectl --server '${url}/clusters/*' get apibindings.v1alpha2.apis.kcp.io -o custom-columns='${columns}'`;
}

/** isPlain says whether shells take a URL as it is: a tenant may have written it. */
export function isPlain(url: string): boolean {
  return /^https:\/\/[A-Za-z0-9.:[\]/_-]+$/.test(url);
}

/** Consumers lists who binds an export, of one shard, when asked to: for a provider of many, that is a long list. */
function Consumers({ place, url }: { place: Place; url: string }) {
  const list = useCallback((next?: string) => listConsumers(place, url, next), [place, url]);
  const [asked, setAsked] = useState(false);
  const { items, hasMore, loading, error, load } = usePages(list, asked);
  if (!isServerOf(place, url)) {
    return (
      <Typography sx={{ overflowWrap: 'anywhere' }}>
        {url} is on a server that this page does not know: do not send credentials to it. With a
        kubeconfig of yours for that server, kubectl lists the bindings.
      </Typography>
    );
  }
  if (!canReachURL(place, url)) {
    return (
      <>
        <Typography>
          Headlamp has no credentials for this URL. With the right to get apiexports/content of the
          export, kubectl lists the bindings:
        </Typography>
        {isPlain(url) && <Command text={consumers(url)} />}
      </>
    );
  }
  if (!asked) {
    return (
      <Button variant="outlined" onClick={() => setAsked(true)}>
        List who binds it at {url}
      </Button>
    );
  }
  return (
    <>
      {!!error && (
        <Failure
          error={error}
          what="list the bindings of the export"
          resource="apiexports/content"
        />
      )}
      {!error && !(loading && items.length === 0) && (
        <SimpleTable
          data={items}
          emptyMessage="Nobody binds the export there."
          columns={[
            { label: 'Workspace', getter: ({ path, cluster }: Consumer) => path || cluster },
            { label: 'Binding', getter: ({ binding }: Consumer) => binding },
            { label: 'Phase', getter: ({ phase }: Consumer) => <State text={phase} /> },
          ]}
        />
      )}
      {loading && <Loader title="Listing the bindings" />}
      {!loading && hasMore && <Button onClick={load}>Show more</Button>}
    </>
  );
}
