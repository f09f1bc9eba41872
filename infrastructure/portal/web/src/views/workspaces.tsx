import { useEffect, useState } from 'preact/hooks'
import { inWorkspace, isWorkspace } from '../api'
import { Command, Failure, Loading, plural, Raw, Title } from '../components/parts'
import { usePortal, useStore } from '../context'
import { rawOf } from '../errors'
import { href, navigate } from '../router'
import type { Workspace } from '../types'

/** Workspaces chooses a workspace: by its path, or among those below another. */
export function Workspaces({ workspace }: { workspace: string }) {
  const [path, setPath] = useState(workspace)
  const [error, setError] = useState('')
  return (
    <>
      <Title text="Choose a workspace" />
      <form class="narrow" noValidate onSubmit={(event) => {
        event.preventDefault()
        const chosen = path.trim()
        if (!isWorkspace(chosen)) return setError('A path is made of names with colons between them, such as root:team:project.')
        navigate(href(chosen))
      }}>
        <div class={`field${error ? ' invalid' : ''}`}>
          <div class="above">
            <label for="workspace">Path of the workspace</label>
            <div class="control">
              <input id="workspace" type="text" autocomplete="off" autocapitalize="none" spellcheck={false} value={path} aria-describedby="workspace-hint"
                aria-invalid={error !== ''} onInput={(event) => {
                  setPath(event.currentTarget.value)
                  setError('')
                }} />
              <button type="submit" class="primary">Open</button>
            </div>
          </div>
          <p class="hint" id="workspace-hint">Such as root:team:project. “kubectl ws .” prints that of your kubeconfig.</p>
          {error && <p class="error" role="alert">{error}</p>}
        </div>
      </form>
      {workspace && <Parents workspace={workspace} />}
      <Children key={workspace} parent={workspace || 'root'} />
    </>
  )
}

function Parents({ workspace }: { workspace: string }) {
  const names = workspace.split(':')
  return (
    <nav aria-label="Workspaces above">
      <ol class="breadcrumbs">
        {names.map((name, index) => {
          const path = names.slice(0, index + 1).join(':')
          return <li key={path}><a href={href(path, ['workspaces'])} {...(path === workspace ? { 'aria-current': 'location' } : {})}>{name}</a></li>
        })}
      </ol>
    </nav>
  )
}

function Children({ parent }: { parent: string }) {
  const { api } = usePortal()
  const [found, setFound] = useState<Workspace[]>()
  const [error, setError] = useState<unknown>()
  useEffect(() => {
    const ended = new AbortController()
    api.json<{ items: Workspace[] }>(`${inWorkspace(parent, 'apis', 'tenancy.kcp.io', 'v1alpha1', 'workspaces')}?limit=1000`, { signal: ended.signal })
      .then(({ items }) => setFound(items), (reason) => !ended.signal.aborted && setError(reason))
    return () => ended.abort()
  }, [parent])
  return (
    <section aria-labelledby="children">
      <h2 id="children">Workspaces below {parent}</h2>
      {error !== undefined && <Failure kind="info" error={error} what={`list the workspaces below ${parent}`} where=""> You can still open a workspace by its path.</Failure>}
      {error === undefined && !found && <Loading />}
      {found && <p role="status">{found.length === 0 ? 'There is none.' : plural(found.length, 'workspace')}</p>}
      {found && (
        <ul class="rows">
          {found.map(({ metadata: { name }, status }) => (
            <li key={name}>
              <a href={href(`${parent}:${name}`)}>{name}</a>
              {status?.phase && status.phase !== 'Ready' && <span class="muted">{status.phase}</span>}
              <a class="muted" href={href(`${parent}:${name}`, ['workspaces'])} aria-label={`Workspaces below ${name}`}>below</a>
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

/** Unbound says how to get the catalogue into a workspace that does not have it. It goes away by itself. */
export function Unbound() {
  const store = useStore()
  const { config, workspace } = store
  return (
    <>
      <Title text="This workspace has no catalogue" />
      <p>The catalogue is in a workspace once its APIExport is bound there. Who administers {workspace} does that with:</p>
      <Command text={[
        `kubectl ws :${workspace}`,
        `kubectl kcp bind apiexport ${config.providerWorkspace || '<workspace of the provider>'}:${config.export} --name infrastructure`,
        'kubectl kcp claims accept infrastructure --resource secrets.core',
      ].join('\n')} />
      <p class="hint">The last command lets the provider hand over how to connect, as Secrets; it may be left out.</p>
      <p>This page looks again every few seconds. Or <a href={href(workspace, ['workspaces'])}>choose another workspace</a>.</p>
    </>
  )
}

/** Inaccessible is shown for a workspace that the user may not see, or that cannot be reached. */
export function Inaccessible() {
  const store = useStore()
  const { user } = usePortal().session
  const forbidden = store.binding === 'forbidden'
  return (
    <>
      <Title text={forbidden ? 'You have no access to this workspace' : 'The workspace cannot be reached'} />
      {forbidden
        ? <p>There is no workspace {store.workspace}, or {user || 'you'} may not use it. Check the path, or ask an administrator of the workspace for access.</p>
        : <p>The server does not answer as it should. This page tries again every few seconds.</p>}
      <Raw text={rawOf(store.error)} />
      <p><a href={href(store.workspace, ['workspaces'])}>Choose another workspace</a></p>
    </>
  )
}
