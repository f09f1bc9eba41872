import { useState } from 'preact/hooks'
import { APIError } from '../api'
import { Dialog } from '../components/dialog'
import { Failure, Notice } from '../components/parts'
import { usePortal, useStore } from '../context'
import { href, navigate } from '../router'
import type { Kind } from '../store'
import type { Instance, KubeObject } from '../types'

/** Delete deletes an instance whose name the user types, and goes back to the list. */
export function Delete({ kind, instance, onCancel }: { kind: Kind; instance: Instance; onCancel: () => void }) {
  const { api, announce, drafts } = usePortal()
  const store = useStore()
  const [typed, setTyped] = useState('')
  const [mistyped, setMistyped] = useState(false)
  const [error, setError] = useState<unknown>()
  const [busy, setBusy] = useState(false)
  const { name, uid } = instance.metadata
  const remove = async () => {
    setMistyped(typed !== name)
    setError(undefined)
    if (typed !== name) return
    setBusy(true)
    try {
      const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid } }
      const answer = await api.json<KubeObject>(store.path(kind.version, kind.resource, name), { method: 'DELETE', body })
      if (answer.apiVersion !== 'v1') kind.feed.apply(answer as Instance) // it stays until what it is made of is removed
    } catch (reason) {
      // Who was faster has done what was wanted.
      if (!(reason instanceof APIError && reason.status.code === 404)) {
        setError(reason)
        setBusy(false)
        return
      }
    }
    drafts.delete(href(store.workspace, ['instances', kind.resource, name, 'edit']))
    store.deletion = { kind, name, uid }
    announce(`${kind.kind} ${name} is being deleted.`)
    // Going back from the list does not lead to what is no longer there.
    navigate(href(store.workspace, ['instances']), true)
  }
  return (
    <Dialog title={`Delete ${kind.kind} ${name}?`} onCancel={onCancel}>
      <p>Everything it is made of is removed, with its data. This cannot be undone.</p>
      {mistyped && <Notice kind="error">Type {name} to confirm.</Notice>}
      {error !== undefined && <Failure error={error} what={`delete ${kind.resource}`} />}
      <form noValidate onSubmit={(event) => {
        event.preventDefault()
        void remove()
      }}>
        <div class="field">
          <label for="confirmation">Type <strong>{name}</strong> to confirm</label>
          <input id="confirmation" type="text" autocomplete="off" autocapitalize="none" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </div>
        <div class="actions">
          <button type="submit" class="danger" disabled={busy}>{busy ? 'Deleting…' : 'Delete'}</button>
          <button type="button" onClick={onCancel}>Cancel</button>
        </div>
      </form>
    </Dialog>
  )
}
