import { Icon } from '@iconify/react';
import { CommonComponents } from '@kinvolk/headlamp-plugin/lib';
import { Box, Button, Collapse, IconButton, List, ListItem, Typography } from '@mui/material';
import { useCallback, useState } from 'react';
import { useAdd, useOpen, usePages, usePlace } from './hooks';
import { chevron } from './icons';
import { Failure, State } from './parts';
import { childOf, parentsOf } from './paths';
import { canReach, type Place } from './place';
import type { Workspace } from './types';
import { listWorkspaces, pageSize } from './workspaces';

const { Loader, SectionBox } = CommonComponents;
const resource = 'workspaces.tenancy.kcp.io';

/** mostAdded is how many workspaces are added at once: Headlamp asks each of its clusters whether it is well. */
const mostAdded = 50;

/** WorkspacesPage has the workspaces below that of the cluster. */
export function WorkspacesPage() {
  const { place, error } = usePlace();
  return (
    <SectionBox title="Workspaces">
      {!!error && (
        <Failure error={error} what="read the kubeconfigs in this browser" resource={resource} />
      )}
      {place ? (
        <Tree key={place.cluster} place={place} />
      ) : (
        !error && <Loader title="Looking up the workspace" />
      )}
    </SectionBox>
  );
}

function Tree({ place }: { place: Place }) {
  const path = place.address?.path;
  const [error, setError] = useState<unknown>();
  const open = useOpen(place, setError);
  const add = useAdd(place, setError);
  return (
    <>
      {path && (
        <Box
          component="nav"
          aria-label="Workspaces above"
          display="flex"
          alignItems="center"
          flexWrap="wrap"
        >
          {parentsOf(path).map(parent => (
            <Box key={parent}>
              <Button onClick={() => open(parent)} aria-label={`Open ${parent}`}>
                {parent.split(':').pop()}
              </Button>
              :
            </Box>
          ))}
          <Typography sx={{ p: 1 }} aria-current="page">
            {path.split(':').pop()}
          </Typography>
        </Box>
      )}
      {!!error && <Failure error={error} what="open the workspace" resource={resource} />}
      <Level place={place} path={path} onOpen={open} onAdd={add} />
    </>
  );
}

/** Level has the workspaces directly below one. It lists them when it is shown for the first time. */
function Level(props: {
  place: Place;
  path?: string;
  onOpen: (path: string) => void;
  onAdd: (paths: string[]) => void;
}) {
  const { place, path, onOpen, onAdd } = props;
  const list = useCallback((next?: string) => listWorkspaces(place, path, next), [place, path]);
  const { items, hasMore, loading, error, load } = usePages(list, true);
  const below = path ?? 'this workspace';
  return (
    <>
      {items.length > 0 && (
        <List dense disablePadding aria-label={`Workspaces below ${below}`}>
          {items.map(workspace => (
            <Item
              key={workspace.metadata.name}
              place={place}
              parent={path}
              workspace={workspace}
              onOpen={onOpen}
              onAdd={onAdd}
            />
          ))}
        </List>
      )}
      {path && place.connection && items.length > 1 && items.length <= mostAdded && (
        <Button
          size="small"
          variant="outlined"
          sx={{ my: 1 }}
          onClick={() => onAdd(items.map(({ metadata }) => childOf(path, metadata.name)))}
        >
          Add these {items.length} to the clusters of Headlamp
        </Button>
      )}
      {!!error && (
        <Failure error={error} what={`list the workspaces below ${below}`} resource={resource} />
      )}
      {loading && <Loader title={`Listing the workspaces below ${below}`} />}
      {!loading && !error && items.length === 0 && (
        <Typography sx={{ p: 1 }} color="text.secondary">
          There are no workspaces below {below}. To create one:{' '}
          <code>kubectl create workspace NAME</code>
        </Typography>
      )}
      {!loading && hasMore && (
        <Button onClick={load}>
          Show {pageSize} more below {below}
        </Button>
      )}
    </>
  );
}

function Item(props: {
  place: Place;
  parent?: string;
  workspace: Workspace;
  onOpen: (path: string) => void;
  onAdd: (paths: string[]) => void;
}) {
  const { place, parent, workspace, onOpen, onAdd } = props;
  const { metadata, spec, status } = workspace;
  const [expanded, setExpanded] = useState(false);
  const path = parent && childOf(parent, metadata.name);
  const reachable = path !== undefined && canReach(place, path);
  const phase = metadata.deletionTimestamp ? 'Deleting' : status?.phase || 'Scheduling';
  const type = [spec?.type?.path, spec?.type?.name].filter(Boolean).join(':');
  return (
    <ListItem
      disableGutters
      disablePadding
      sx={{ display: 'block' }}
      data-workspace={path ?? metadata.name}
    >
      <Box display="flex" alignItems="center" gap={1} flexWrap="wrap">
        {reachable && (
          <IconButton
            size="small"
            aria-label={`Workspaces below ${path}`}
            aria-expanded={expanded}
            onClick={() => setExpanded(!expanded)}
          >
            <Icon icon={chevron} rotate={expanded ? 1 : 0} />
          </IconButton>
        )}
        <Typography component="span">{metadata.name}</Typography>
        <State text={phase} />
        <Typography component="span" variant="body2" color="text.secondary">
          {type}
        </Typography>
        {path && (
          <Button
            size="small"
            variant="outlined"
            aria-label={`Open ${path}`}
            onClick={() => onOpen(path)}
          >
            Open
          </Button>
        )}
      </Box>
      {reachable && (
        <Collapse in={expanded} unmountOnExit sx={{ pl: 4 }}>
          <Level place={place} path={path} onOpen={onOpen} onAdd={onAdd} />
        </Collapse>
      )}
    </ListItem>
  );
}
