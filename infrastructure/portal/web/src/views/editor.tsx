import { useLayoutEffect, useState } from 'preact/hooks'
import { Notice } from '../components/parts'
import { usePortal } from '../context'
import { fieldID, FormContext } from '../form/context'
import { Frame } from '../form/field'
import { Properties } from '../form/groups'
import { Summary } from '../form/summary'
import { nameLabel, useValidation } from '../form/use-form'
import type { KubeObject, Schema } from '../types'
import { equal, prune, type Value } from '../values'
import { fromYAML, toYAML } from '../yaml'

/** Draft is what an editor has: the object, and the text where it is edited as YAML. */
export interface Draft {
  object: Value
  yaml: string | undefined
}

interface EditorProps {
  /** address is the key of the draft, which survives that the view is left. */
  address: string
  schema: Schema
  initial: KubeObject & { spec?: Value }
  /** named is whether the object exists: its name cannot be changed. */
  named: boolean
  what: string
  action: string
  /** send writes the object; dryRun only asks. */
  send(object: Value, dryRun: boolean, signal?: AbortSignal): Promise<void>
  onCancel: string
  sample?: Record<string, unknown> | undefined
}

/** complete is the object that is sent. */
function complete(object: Value, schema: Schema): Value {
  return { ...object, spec: prune(object.spec, schema) ?? {} }
}

/** Editor edits an object by a form or as YAML. */
export function Editor({ address, schema, initial, named, what, action, send, onCancel, sample }: EditorProps) {
  const { drafts } = usePortal()
  const [draft, setDraft] = useState<Draft>(() => drafts.get<Draft>(address) ?? { object: initial, yaml: undefined })
  const [problem, setProblem] = useState('')
  const asYAML = draft.yaml !== undefined
  // Before the next event: effects that wait for a paint are dropped where the view is left at once.
  useLayoutEffect(() => {
    if (draft.yaml === undefined && equal(draft.object, initial)) drafts.delete(address)
    else drafts.set(address, draft)
  }, [draft])

  const content = (): Value => (draft.yaml === undefined ? complete(draft.object, schema) : read(draft.yaml, initial, named))
  const validation = useValidation(schema, draft, what, async (signal) => {
    // Text that cannot be read yet is reported when it is sent.
    let object: Value
    try {
      object = content()
    } catch {
      return
    }
    await send(object, true, signal)
  })
  const change = (object: Value) => setDraft({ object, yaml: undefined })
  const toggle = (yaml: boolean) => {
    try {
      setDraft(yaml ? { ...draft, yaml: toYAML(complete(draft.object, schema)) } : { object: content(), yaml: undefined })
      setProblem('')
    } catch (error) {
      setProblem((error as Error).message)
    }
  }
  const name: string = draft.object?.metadata?.name ?? ''

  return (
    <FormContext.Provider value={validation.state}>
      <div class="segments" role="group" aria-label="Edit as">
        <button type="button" aria-pressed={!asYAML} onClick={() => asYAML && toggle(false)}>Form</button>
        <button type="button" aria-pressed={asYAML} onClick={() => asYAML || toggle(true)}>YAML</button>
        {sample && <button type="button" class="quiet" onClick={() => change({ ...draft.object, spec: sample })}>Fill in the example</button>}
      </div>
      {problem && <Notice kind="error">{problem}</Notice>}
      <form noValidate onSubmit={(event) => {
        event.preventDefault()
        void validation.submit(async () => {
          await send(content(), false)
          drafts.delete(address)
        })
      }}>
        <Summary validation={validation} asYAML={asYAML} />
        {asYAML ? (
          <div class="field">
            <label for="yaml">Object as YAML</label>
            <textarea id="yaml" class="code tall" spellcheck={false} value={draft.yaml} onInput={(event) => setDraft({ ...draft, yaml: event.currentTarget.value })} />
          </div>
        ) : (
          <>
            {!named && (
              <Frame schema={{ type: 'string', description: 'Lower-case letters, digits and dashes. It cannot be changed later.' }} label={nameLabel}
                path={['metadata', 'name']} value={name} required onChange={() => {}}>
                {(attributes) => (
                  <input {...attributes} type="text" autocomplete="off" autocapitalize="none" spellcheck={false} value={name}
                    onInput={(event) => change({ ...draft.object, metadata: { ...draft.object.metadata, name: event.currentTarget.value } })} />
                )}
              </Frame>
            )}
            <div id={fieldID(['spec'])} tabIndex={-1}>
              <Properties schema={schema} path={['spec']} value={draft.object?.spec} onChange={(spec) => change({ ...draft.object, spec })} />
            </div>
          </>
        )}
        <div class="actions">
          <button type="submit" class="primary" disabled={validation.busy}>{validation.busy ? 'Sending…' : action}</button>
          <a class="button" href={onCancel} onClick={() => setTimeout(() => drafts.delete(address))}>Cancel</a>
        </div>
      </form>
    </FormContext.Provider>
  )
}

/** read reads an object; what identifies it cannot be changed. */
function read(text: string, initial: KubeObject, named: boolean): Value {
  const object = fromYAML(text)
  if (!object || typeof object !== 'object' || Array.isArray(object)) throw new Error('This is no object: expected apiVersion, kind, metadata and spec.')
  if (object.apiVersion !== initial.apiVersion || object.kind !== initial.kind) throw new Error(`apiVersion and kind are ${initial.apiVersion} and ${initial.kind}; they cannot be changed here.`)
  if (named && object.metadata?.name !== initial.metadata.name) throw new Error(`The name is ${initial.metadata.name}; it cannot be changed.`)
  return object
}
