import { useState } from 'preact/hooks'
import { Dialog } from '../components/dialog'
import { Notice } from '../components/parts'
import { usePortal, useStore } from '../context'
import { explain } from '../errors'
import type { Kind } from '../store'
import type { Instance } from '../types'

/** Delete deletes an instance whose name the user types. */
export function Delete({ kind, instance, onEnd }: { kind: Kind; instance: Instance; onEnd: () => void }) {
  const { api, announce } = usePortal()
  const store = useStore()
  const [typed, setTyped] = useState('')
  const [error, setError] = useState('')
  const [busy, setBusy] = useState(false)
  const { name, uid } = instance.metadata
  const remove = async () => {
    if (typed !== name) return setError(`Type ${name} to confirm.`)
    setBusy(true)
    try {
      const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid } }
      await api.fetch(store.path(kind.version, kind.resource, name), { method: 'DELETE', body })
      announce(`${kind.kind} ${name} is being deleted.`)
      onEnd()
    } catch (reason) {
      setError(explain(reason, `delete ${kind.resource}`))
      setBusy(false)
    }
  }
  return (
    <Dialog title={`Delete ${kind.kind} ${name}?`} onCancel={onEnd}>
      <p>Everything it is made of is removed, with its data. This cannot be undone.</p>
      {error && <Notice kind="error">{error}</Notice>}
      <form noValidate onSubmit={(event) => {
        event.preventDefault()
        void remove()
      }}>
        <div class="field">
          <label for="confirmation">Type <strong>{name}</strong> to confirm</label>
          <input id="confirmation" type="text" autocomplete="off" autocapitalize="none" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </div>
        <div class="actions">
          <button type="submit" class="danger" disabled={busy}>Delete</button>
          <button type="button" onClick={onEnd}>Cancel</button>
        </div>
      </form>
    </Dialog>
  )
}
