import { CommonComponents } from '@kinvolk/headlamp-plugin/lib';
import { Button, Typography } from '@mui/material';
import { useState } from 'react';
import { statusOf } from './errors';
import { useOpen, usePlace } from './hooks';
import { Failure, Listed } from './parts';
import type { Place } from './place';
import { Shard } from './resources';
import type * as types from './types';

const { SectionBox, SimpleTable, StatusLabel } = CommonComponents;
const resource = 'shards.core.kcp.io';

/** ShardsPage has the shards of the installation, which are objects in the workspace root. */
export function ShardsPage() {
  const { place } = usePlace();
  const { items, error } = Shard.useList();
  const elsewhere = statusOf(error) === 404 && place?.address && place.address.path !== 'root';
  return (
    <SectionBox title="Shards">
      <Typography color="text.secondary" sx={{ mb: 1 }}>
        The servers with the workspaces of the installation. Only administrators may see them.
      </Typography>
      {elsewhere ? (
        <InRoot place={place} />
      ) : (
        <Listed
          items={items}
          error={error}
          what="list shards"
          resource={resource}
          empty="There are no Shard objects in this workspace."
        >
          <ShardTable shards={items?.map(({ object }) => object) ?? []} />
        </Listed>
      )}
    </SectionBox>
  );
}

function InRoot({ place }: { place: Place }) {
  const [error, setError] = useState<unknown>();
  const open = useOpen(place, setError);
  return (
    <>
      <Typography>Shards are objects in the workspace root.</Typography>
      <Button variant="outlined" onClick={() => open('root')}>
        Open root
      </Button>
      {!!error && <Failure error={error} what="open root" resource={resource} />}
    </>
  );
}

/** ShardTable has a row for each shard. */
export function ShardTable({ shards }: { shards: types.Shard[] }) {
  return (
    <SimpleTable
      data={shards}
      columns={[
        { label: 'Name', getter: ({ metadata }: types.Shard) => metadata.name },
        { label: 'Region', getter: ({ metadata }: types.Shard) => metadata.labels?.region ?? '' },
        {
          label: 'Ready',
          getter: (shard: types.Shard) => <Condition shard={shard} type="Ready" />,
        },
        {
          label: 'New workspaces',
          getter: (shard: types.Shard) => <Condition shard={shard} type="Schedulable" />,
        },
        {
          label: 'Load',
          getter: (shard: types.Shard) => loadOf(shard).join(', ') || 'Not reported',
        },
        { label: 'Address', getter: ({ spec }: types.Shard) => spec.externalURL || spec.baseURL },
      ]}
    />
  );
}

/** loadOf is what is used of each resource of a shard, beside its capacity. */
export function loadOf({ status = {} }: types.Shard): string[] {
  const used = { ...status.used, ...status.load };
  return Object.keys(used)
    .sort()
    .map(name =>
      [used[name], status.capacity?.[name] && `of ${status.capacity[name]}`, name]
        .filter(Boolean)
        .join(' ')
    );
}

/** Condition is a condition in words, with the reason where it is not True. */
function Condition({ shard, type }: { shard: types.Shard; type: string }) {
  const condition = shard.status?.conditions?.find(condition => condition.type === type);
  if (!condition) {
    return <StatusLabel status="">Not reported</StatusLabel>;
  }
  const good = condition.status === 'True';
  return (
    <>
      <StatusLabel status={good ? 'success' : 'error'}>{good ? 'Yes' : 'No'}</StatusLabel>
      {!good && (
        <Typography variant="body2">
          {[condition.reason, condition.message].filter(Boolean).join(': ')}
        </Typography>
      )}
    </>
  );
}
