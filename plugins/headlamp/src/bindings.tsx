import { CommonComponents } from '@kinvolk/headlamp-plugin/lib';
import { Typography } from '@mui/material';
import { type AnsweredClaim, answeredClaims, resourceOf } from './claims';
import { Conditions, Listed, State } from './parts';
import { APIBinding } from './resources';
import type * as types from './types';

const { NameValueTable, SectionBox, SimpleTable } = CommonComponents;
const resource = 'apibindings.apis.kcp.io';

/** BindingsPage has the APIs that a workspace has bound, and its answers to the permission claims of their providers. */
export function BindingsPage() {
  const { items, error } = APIBinding.useList();
  return (
    <>
      <SectionBox title="API bindings">
        <Typography color="text.secondary" sx={{ mb: 1 }}>
          What the workspace uses of the APIs of others. A provider may claim permissions in the
          workspace beyond its own resources: it has what the binding accepts, and nothing else.
        </Typography>
        <Listed
          items={items}
          error={error}
          what="list API bindings"
          resource={resource}
          empty={
            <>
              No API is bound here. An APIBinding brings the resources of an APIExport into the
              workspace: <code>kubectl kcp bind apiexport PATH:NAME</code>
            </>
          }
        >
          {null}
        </Listed>
      </SectionBox>
      {!error &&
        items?.map(({ object }) => <Binding key={object.metadata.name} binding={object} />)}
    </>
  );
}

/** Binding has one binding. */
export function Binding({ binding }: { binding: types.APIBinding }) {
  const { metadata, spec, status } = binding;
  const { path, name } = spec.reference.export ?? {};
  const phase = metadata.deletionTimestamp ? 'Deleting' : status?.phase || 'Binding';
  return (
    <SectionBox title={metadata.name} headerProps={{ headerStyle: 'subsection' }}>
      <NameValueTable
        rows={[
          { name: 'Export', value: [path, name].filter(Boolean).join(':') },
          { name: 'Phase', value: <State text={phase} /> },
          {
            name: 'Resources',
            value: status?.boundResources?.map(resourceOf).join(', ') || 'none yet',
          },
        ]}
      />
      <Typography variant="h6" component="h2">
        Permission claims
      </Typography>
      <SimpleTable
        data={answeredClaims(binding)}
        emptyMessage="The provider claims nothing beyond its own resources."
        columns={[
          { label: 'Resource', getter: ({ resource }: AnsweredClaim) => resource },
          { label: 'Verbs', getter: ({ verbs }: AnsweredClaim) => verbs.join(', ') },
          { label: 'Answer', getter: ({ answer }: AnsweredClaim) => <State text={answer} /> },
          {
            label: 'For',
            getter: ({ selects, refused }: AnsweredClaim) =>
              [selects, refused.length > 0 && `not accepted: ${refused.join(', ')}`]
                .filter(Boolean)
                .join('; '),
          },
        ]}
      />
      <Typography variant="h6" component="h2">
        Conditions
      </Typography>
      <Conditions conditions={status?.conditions} />
    </SectionBox>
  );
}
