import { useEffect, useRef, useState } from 'preact/hooks'
import type { Schema } from '../types'
import { limits, type Value } from '../values'
import { fieldID, type FieldProps, useField } from './context'
import { Field, Messages, RemoveButton } from './field'

/** Group is a field set with what is wrong with the whole of it. */
function Group({ schema, label, path, required, onRemove, children }: Omit<FieldProps, 'value' | 'onChange'> & { children: preact.ComponentChildren }) {
  const { messages, id } = useField(path)
  const words = limits(schema).join(', ')
  return (
    <fieldset id={id} tabIndex={-1} class={messages.length > 0 ? 'invalid' : ''} {...(messages.length > 0 ? { 'aria-describedby': `${id}-error` } : {})}>
      <legend>{label}{required && <span class="required"> (required)</span>}</legend>
      {onRemove && <RemoveButton label={label} onRemove={onRemove} />}
      {schema.description && <p class="hint">{schema.description}</p>}
      {words && <p class="hint limits">{words}</p>}
      <Messages id={`${id}-error`} messages={messages} />
      {children}
    </fieldset>
  )
}

/** Properties are the fields of an object: those that are required first. */
export function Properties({ schema, path, value, onChange }: Pick<FieldProps, 'schema' | 'path' | 'value' | 'onChange'>) {
  const required = new Set(schema.required)
  const latest = useLatest(value)
  const properties = Object.entries(schema.properties ?? {}).sort(([a], [b]) => Number(required.has(b)) - Number(required.has(a)))
  return (
    <>
      {properties.map(([name, property]) => (
        <Field key={name} schema={property} label={property.title ?? name} path={[...path, name]} value={value?.[name]} required={required.has(name)}
          onChange={(next) => {
            const { [name]: _, ...others } = latest.current ?? {}
            latest.current = next === undefined ? others : { ...latest.current, [name]: next }
            onChange(latest.current)
          }} />
      ))}
    </>
  )
}

/** useLatest lets two changes before the next rendering both count. */
function useLatest<T>(value: T): { current: T } {
  const latest = useRef(value)
  latest.current = value
  return latest
}

export function ObjectField(props: FieldProps) {
  return <Group {...props}><Properties {...props} /></Group>
}

/** first is the value of a new entry. */
function first(schema: Schema): Value {
  return schema.default ?? (schema.type === 'object' ? {} : schema.type === 'array' ? [] : undefined)
}

/** useFocus focuses the control with an ID after the next rendering. */
function useFocus(): (id: string) => void {
  const [id, setID] = useState('')
  useEffect(() => {
    if (!id) return
    document.getElementById(id)?.focus()
    setID('')
  }, [id])
  return setID
}

/** useKeys gives entries keys that stay with them when others are removed. */
function useKeys(length: number): { keys: number[]; remove(index: number): void } {
  const keys = useRef<number[]>([])
  const next = useRef(0)
  while (keys.current.length < length) keys.current.push(next.current++)
  keys.current.length = length
  return { keys: keys.current, remove: (index) => keys.current.splice(index, 1) }
}

export function ListField(props: FieldProps) {
  const { schema, label, path, onChange } = props
  const items: Value[] = Array.isArray(props.value) ? props.value : []
  const { keys, remove } = useKeys(items.length)
  const focus = useFocus()
  const add = `${fieldID(path)}-add`
  const element = schema.items!
  return (
    <Group {...props}>
      {items.map((item, index) => (
        <Field key={keys[index]} schema={element} label={`${element.title ?? label} ${index + 1}`} path={[...path, index]} value={item ?? undefined} required={false}
          onChange={(next) => onChange(items.map((other, at) => (at === index ? next : other)))}
          onRemove={() => {
            remove(index)
            onChange(items.filter((_, at) => at !== index))
            focus(add)
          }} />
      ))}
      <button type="button" id={add} aria-label={`Add to ${label}`} onClick={() => {
        onChange([...items, first(element)])
        focus(fieldID([...path, items.length]))
      }}>Add</button>
    </Group>
  )
}

export function MapField(props: FieldProps) {
  const { schema, label, path, onChange } = props
  const { messages } = useField(path)
  const element = schema.additionalProperties as Schema
  const [name, setName] = useState('')
  const focus = useFocus()
  const entries = Object.entries((props.value ?? {}) as Record<string, Value>)
  const id = `${fieldID(path)}-key`
  const empty = element.type === 'string' ? '' : undefined
  const taken = entries.some(([key]) => key === name)
  const add = () => {
    if (!name || taken) return focus(id)
    onChange({ ...props.value, [name]: first(element) ?? empty })
    setName('')
    focus(fieldID([...path, name]))
  }
  return (
    <Group {...props}>
      {entries.map(([key, item]) => (
        <Field key={key} schema={element} label={key} path={[...path, key]} value={item} required={false}
          onChange={(next) => onChange({ ...props.value, [key]: next ?? empty })}
          onRemove={() => {
            onChange(Object.fromEntries(entries.filter(([other]) => other !== key)))
            focus(id)
          }} />
      ))}
      <div class="above">
        <label for={id}>New key of {label}</label>
        <div class="control">
          <input id={id} type="text" autocomplete="off" spellcheck={false} value={name} aria-invalid={taken || messages.length > 0}
            onInput={(event) => setName(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== 'Enter') return
              event.preventDefault()
              add()
            }} />
          <button type="button" aria-label={`Add to ${label}`} onClick={add}>Add</button>
        </div>
        {taken && <p class="error">{label} has this key.</p>}
      </div>
    </Group>
  )
}
