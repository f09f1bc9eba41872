// The shapes of the objects are those that the portal reads. Only types come from there, which no build has: the two are built apart.
export type {
  APIBinding,
  APIExport,
  Condition,
  EndpointSlice,
  PermissionClaim,
  Shard,
  Workspace,
} from '../../../infrastructure/portal/web/src/types';
