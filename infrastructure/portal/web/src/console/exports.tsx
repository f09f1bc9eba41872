import { inWorkspace, isName } from '../api'
import { Age, Command, Copy } from '../components/parts'
import type { APIExport, EndpointSlice, Shard } from '../types'
import { useFeed } from '../watches'
import { Facts, resourceOf, Unknown } from './parts'

/** Exports has the APIs that a workspace offers to others, and where their providers reach the workspaces that bind them. */
export function Exports({ path }: { path: string }) {
  const shards = useFeed<Shard>(inWorkspace('root', 'apis', 'core.kcp.io', 'v1alpha1', 'shards'))
  const origins = shards.state === 'loading' ? undefined : originsOf(shards.sorted)
  const exports = useFeed<APIExport>(inWorkspace(path, 'apis', 'apis.kcp.io', 'v1alpha2', 'apiexports'))
  const slices = useFeed<EndpointSlice>(inWorkspace(path, 'apis', 'apis.kcp.io', 'v1alpha1', 'apiexportendpointslices'))
  const unknown = <Unknown feed={exports} what={`list the API exports of ${path}`} />
  if (exports.items.size === 0) {
    return exports.state !== 'current' ? unknown : (
      <div class="panel empty"><p>No API is exported here. An APIExport offers resources to other workspaces, which bind it: what is bound here is at API bindings.</p></div>
    )
  }
  // A slice may also be in another workspace than its export; it then has the path of the export. That of a slice which a shard has made is the logical cluster.
  const belongs = ({ spec: { export: of } }: EndpointSlice, { metadata }: APIExport) =>
    of.name === metadata.name && (!of.path || of.path === path || of.path === metadata.annotations?.['kcp.io/cluster'])
  return (
    <>
      {unknown}
      {slices.state === 'failed' && <Unknown feed={slices} what={`list the endpoint slices of ${path}`} />}
      {exports.sorted.map((exported) => <Export key={exported.metadata.name} exported={exported} origins={origins} loaded={slices.state === 'current'} slices={slices.sorted.filter((slice) => belongs(slice, exported))} />)}
    </>
  )
}

/** originsOf are the servers that get credentials: that of this page, and those that the Shards name, which only administrators of the installation write. */
function originsOf(shards: Shard[]): string[] {
  return [location.origin, ...shards.flatMap(({ spec }) => [originOf(spec.externalURL), originOf(spec.virtualWorkspaceURL)])].filter(Boolean)
}

/** originOf is empty for what is no URL of HTTPS. */
function originOf(url: string | undefined): string {
  const parsed = url && URL.canParse(url) ? new URL(url) : undefined
  return parsed?.protocol === 'https:' ? parsed.origin : ''
}

function Export({ exported: { metadata, spec = {}, status = {} }, slices, loaded, origins }: { exported: APIExport; slices: EndpointSlice[]; loaded: boolean; origins: string[] | undefined }) {
  const { name } = metadata
  const wrong = status.conditions?.filter((condition) => condition.status !== 'True') ?? []
  const urls = [...new Set(slices.flatMap((slice) => slice.status?.endpoints?.map(({ url }) => url) ?? []))]
  return (
    <section class="panel" data-export={name} aria-labelledby={`export-${name}`}>
      <h2 id={`export-${name}`}>{name}</h2>
      <Facts facts={[
        ['Identity', status.identityHash && <Copy text={status.identityHash} what={`the identity of ${name}`} />],
        ['Resources', spec.resources?.map((resource) => resourceOf({ group: resource.group, resource: resource.name })).join(', ') || 'none'],
        ['Permission claims', spec.permissionClaims?.length
          ? <ul>{spec.permissionClaims.map((claim) => <li key={`${resourceOf(claim)}:${claim.identityHash}`}>{resourceOf(claim)}: {claim.verbs.join(', ')}</li>)}</ul>
          : 'none: the provider asks for nothing but its own resources'],
        ['Limit of permissions', spec.maximalPermissionPolicy?.local && 'RBAC of this workspace, for users with the prefix apis.kcp.io:binding:'],
        ['Not in order', wrong.length > 0 && <ul>{wrong.map(({ type, reason, message }) => <li key={type}><strong>{type}</strong> {[reason, message].filter(Boolean).join(': ')}</li>)}</ul>],
        ['Created', <Age time={metadata.creationTimestamp} />],
      ]} />
      <h3>Endpoints</h3>
      {loaded && slices.length === 0 && <p class="muted">No endpoint slice is here for this export. Without one, a provider does not learn the URLs of its shards.</p>}
      {slices.map((slice) => <Slice key={slice.metadata.name} slice={slice} />)}
      <h3>Who binds it</h3>
      <p>Consumers are in workspaces of others, and each is listed there, under API bindings. All of them together are in the virtual workspace of the export, which this page does not reach. With the
        right to get apiexports/content of {name} here, the provider lists them with kubectl{urls.length > 1 ? ', once for each URL' : ''}:</p>
      {origins && urls.map((url) => !origins.includes(originOf(url))
        ? <p key={url}><code>{url}</code> is on a server that this page does not know: do not send credentials to it.</p>
        : isPlain(url) && <Command key={url} text={consumers(url)} />)}
      {urls.length === 0 && <p class="muted">The command needs a URL of an endpoint slice. A slice has those of the shards with workspaces that bind the export: without one, nobody binds it, or the slice is new.</p>}
    </section>
  )
}

/** isPlain says whether shells take a URL as it is. */
function isPlain(url: string): boolean {
  return /^https:\/\/[A-Za-z0-9.:[\]/_-]+$/.test(url)
}

function consumers(url: string): string {
  return `kubectl --server '${url}/clusters/*' get apibindings.v1alpha2.apis.kcp.io \\\n  -o custom-columns='WORKSPACE:.metadata.annotations.kcp\\.io/cluster,NAME:.metadata.name,PHASE:.status.phase'`
}

function Slice({ slice: { metadata, spec, status = {} } }: { slice: EndpointSlice }) {
  const wrong = status.conditions?.filter((condition) => condition.status !== 'True') ?? []
  return (
    <div data-slice={metadata.name}>
      <p><strong>{metadata.name}</strong>{spec.partition && isName(spec.partition) && <> for the partition {spec.partition}</>}{status.shardSelector && <> for shards with <code>{status.shardSelector}</code></>}</p>
      {wrong.map(({ type, reason, message }) => <p key={type} class="muted">{type}: {[reason, message].filter(Boolean).join(': ')}</p>)}
      {status.endpoints?.length
        ? <ul>{status.endpoints.map(({ url }) => <li key={url}><Copy text={url} what={`the URL ${url}`} /></li>)}</ul>
        : <p class="muted">It has no URL (yet).</p>}
    </div>
  )
}
