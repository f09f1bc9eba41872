import { CommonComponents } from '@kinvolk/headlamp-plugin/lib';
import { Alert, AlertTitle, Box, Typography } from '@mui/material';
import type { ReactNode } from 'react';
import { explain } from './errors';
import type { Condition } from './types';

const { Loader, Resource, SimpleTable, StatusLabel } = CommonComponents;

/** Failure says what went wrong, and what to do next. */
export function Failure(props: { error: unknown; what: string; resource: string }) {
  const { text, next, command } = explain(props.error, props.what, props.resource);
  return (
    <Alert severity="warning" sx={{ my: 1 }}>
      <AlertTitle>{text}</AlertTitle>
      <Typography variant="body2">{next}</Typography>
      {command && <Command text={command} />}
    </Alert>
  );
}

/** Command is text to copy. */
export function Command({ text }: { text: string }) {
  return (
    <Box display="flex" alignItems="center">
      <Box component="code" sx={{ overflowWrap: 'anywhere' }}>
        {text}
      </Box>
      <Resource.CopyButton text={text} />
    </Box>
  );
}

/** Listed is the content of a list; while there is none, it says why. */
export function Listed(props: {
  items: unknown[] | null;
  error: unknown;
  what: string;
  resource: string;
  empty: ReactNode;
  children: ReactNode;
}) {
  const { items, error, what, resource, empty, children } = props;
  if (error) {
    return <Failure error={error} what={what} resource={resource} />;
  }
  if (items === null) {
    return <Loader title={`Trying to ${what}`} />;
  }
  return <>{items.length === 0 ? <Box sx={{ p: 2 }}>{empty}</Box> : children}</>;
}

/** Tone is the colour of a state: green, yellow, red or none. */
type Tone = 'success' | 'warning' | 'error' | '';

const tones: Record<string, Tone> = {
  Ready: 'success',
  Bound: 'success',
  Accepted: 'success',
  'Accepted in part': 'warning',
  'Waits to be applied': 'warning',
  'Not answered': 'warning',
  Rejected: 'error',
  Unavailable: 'error',
};

/** State is a phase or an answer in its colour. */
export function State({ text }: { text: string }) {
  return <StatusLabel status={tones[text] ?? ''}>{text}</StatusLabel>;
}

/** Conditions has the whole message of each condition: Headlamp's own table hides it. */
export function Conditions({ conditions }: { conditions?: Condition[] }) {
  return (
    <SimpleTable
      data={conditions ?? []}
      emptyMessage="No conditions are reported yet."
      columns={[
        { label: 'Condition', getter: ({ type }: Condition) => type },
        {
          label: 'Status',
          getter: ({ status }: Condition) => (
            <StatusLabel status={status === 'True' ? 'success' : 'error'}>{status}</StatusLabel>
          ),
        },
        {
          label: 'Reason',
          getter: ({ reason, message }: Condition) => [reason, message].filter(Boolean).join(': '),
        },
      ]}
    />
  );
}
