import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { fromYAML, toYAML } from '../yaml'
import { equal } from '../values'
import { type FieldProps, useField } from './context'
import { Frame } from './field'

/** display is how a value that is no object is written. */
function display(value: unknown): string {
  return value === undefined || value === null ? '' : String(value)
}

export function ChoiceField(props: FieldProps) {
  const { schema, value, required, onChange } = props
  const values = schema.enum!
  const fallback = schema.default
  const selected = values.findIndex((candidate) => candidate === (value ?? fallback))
  return (
    <Frame {...props}>
      {(attributes) => (
        <select {...attributes} value={String(selected)} onChange={(event) => onChange(values[Number(event.currentTarget.value)])}>
          {(selected < 0 || (!required && fallback === undefined)) && <option value="-1">{required ? 'Choose…' : 'Not set'}</option>}
          {values.map((candidate, index) => (
            <option key={index} value={String(index)}>
              {candidate === '' ? '(empty)' : display(candidate)}
              {candidate === fallback && ' (default)'}
            </option>
          ))}
        </select>
      )}
    </Frame>
  )
}

export function TextField(props: FieldProps) {
  const { schema, value, onChange } = props
  const read = (text: string) => (text === '' ? undefined : schema['x-kubernetes-int-or-string'] && /^-?\d+$/.test(text) ? Number(text) : text)
  const common = { value: display(value), placeholder: schema.default === undefined ? '' : `${display(schema.default)} (default)`, autocomplete: 'off', spellcheck: false }
  const long = (schema.maxLength ?? 0) > 256 || schema.format === 'byte' || display(value).includes('\n')
  return (
    <Frame {...props}>
      {(attributes) => long
        ? <textarea {...attributes} {...common} rows={4} onInput={(event) => onChange(read(event.currentTarget.value))} />
        : schema.format === 'password'
          ? <input {...attributes} {...common} type="password" autocomplete="new-password" onInput={(event) => onChange(read(event.currentTarget.value))} />
          : <input {...attributes} {...common} type="text" onInput={(event) => onChange(read(event.currentTarget.value))} />}
    </Frame>
  )
}

/** useDraft keeps what was typed where it is no value (yet). */
function useDraft(value: unknown, write: (value: unknown) => string, read: (text: string) => unknown): [string, (text: string) => void] {
  const [draft, setDraft] = useState(() => write(value))
  const known = useRef(value)
  // An effect after painting would compare with what has been typed since.
  useLayoutEffect(() => {
    if (equal(known.current, value)) return
    known.current = value
    setDraft(write(value))
  }, [value])
  return [draft, (text) => {
    setDraft(text)
    known.current = read(text)
  }]
}

export function NumberField(props: FieldProps) {
  const { schema, value, path, onChange } = props
  const { form } = useField(path)
  const read = (text: string): number | undefined => {
    const trimmed = text.trim()
    const number = Number(trimmed)
    const wrong = trimmed !== '' && (Number.isNaN(number) || (schema.type === 'integer' && !Number.isSafeInteger(number)))
    form.invalid(path, wrong ? `${trimmed} is no ${schema.type === 'integer' ? 'whole number' : 'number'}.` : '')
    return trimmed === '' || wrong ? undefined : number
  }
  const [draft, setDraft] = useDraft(value, display, read)
  return (
    <Frame {...props}>
      {(attributes) => (
        <input {...attributes} type="text" inputMode={schema.type === 'integer' ? 'numeric' : 'decimal'} autocomplete="off" value={draft}
          placeholder={schema.default === undefined ? '' : `${display(schema.default)} (default)`}
          onInput={(event) => {
            setDraft(event.currentTarget.value)
            onChange(read(event.currentTarget.value))
          }} />
      )}
    </Frame>
  )
}

export function BooleanField(props: FieldProps) {
  const { schema, value, required, onChange } = props
  if (!required && schema.default === undefined) {
    return <ChoiceField {...props} schema={{ ...schema, enum: [true, false] }} />
  }
  return (
    <Frame {...props} beside>
      {(attributes) => (
        <input {...attributes} type="checkbox" checked={Boolean(value ?? schema.default)} onChange={(event) => onChange(event.currentTarget.checked)} />
      )}
    </Frame>
  )
}

/** YAMLField edits what has no form: values of any type, and what is nested too deeply. */
export function YAMLField(props: FieldProps) {
  const { value, path, onChange } = props
  const { form } = useField(path)
  const read = (text: string): unknown => {
    try {
      const parsed = fromYAML(text)
      form.invalid(path, '')
      return parsed
    } catch (error) {
      form.invalid(path, (error as Error).message)
      return undefined
    }
  }
  const [draft, setDraft] = useDraft(value, toYAML, read)
  return (
    <Frame {...props} label={`${props.label} (YAML)`}>
      {(attributes) => (
        <textarea {...attributes} class="code" rows={5} spellcheck={false} value={draft}
          onInput={(event) => {
            setDraft(event.currentTarget.value)
            onChange(read(event.currentTarget.value))
          }} />
      )}
    </Frame>
  )
}
