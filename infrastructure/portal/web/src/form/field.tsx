import type { ComponentChildren } from 'preact'
import { limits, widgetOf } from '../values'
import { type FieldProps, useField } from './context'
import { ListField, MapField, ObjectField } from './groups'
import { BooleanField, ChoiceField, NumberField, TextField, YAMLField } from './scalars'

/** Field is the form of a schema, of whatever type. */
export function Field(props: FieldProps) {
  switch (widgetOf(props.schema, props.path.length)) {
    case 'choice':
      return <ChoiceField {...props} />
    case 'text':
    case 'intOrString':
      return <TextField {...props} />
    case 'number':
      return <NumberField {...props} />
    case 'boolean':
      return <BooleanField {...props} />
    case 'object':
      return <ObjectField {...props} />
    case 'map':
      return <MapField {...props} />
    case 'list':
      return <ListField {...props} />
    case 'yaml':
      return <YAMLField {...props} />
  }
}

interface FrameProps extends FieldProps {
  children: (attributes: ControlAttributes) => ComponentChildren
  /** beside puts the label after the control, as for check boxes. */
  beside?: boolean
}

export interface ControlAttributes {
  id: string
  'aria-describedby'?: string
  'aria-invalid'?: boolean
  'aria-required'?: boolean
  onBlur: () => void
}

/** Frame is a control with its label, its description, and what is wrong with it. */
export function Frame({ schema, label, path, required, onRemove, children, beside }: FrameProps) {
  const { messages, id, touch } = useField(path)
  const words = limits(schema).join(', ')
  const described = [schema.description && `${id}-description`, words && `${id}-limits`, messages.length > 0 && `${id}-error`].filter(Boolean).join(' ')
  const control = children({
    id, onBlur: touch, 'aria-required': required,
    ...(described ? { 'aria-describedby': described } : {}), ...(messages.length > 0 ? { 'aria-invalid': true } : {}),
  })
  const caption = (
    <label for={id}>
      {label}
      {required && <span class="required"> (required)</span>}
    </label>
  )
  return (
    <div class={`field${messages.length > 0 ? ' invalid' : ''}`}>
      <div class={beside ? 'beside' : 'above'}>
        {!beside && caption}
        <div class="control">
          {control}
          {onRemove && <RemoveButton label={label} onRemove={onRemove} />}
        </div>
        {beside && caption}
      </div>
      {schema.description && <p class="hint" id={`${id}-description`}>{schema.description}</p>}
      {words && <p class="hint limits" id={`${id}-limits`}>{words}</p>}
      <Messages id={`${id}-error`} messages={messages} />
    </div>
  )
}

export function Messages({ id, messages }: { id: string; messages: string[] }) {
  if (messages.length === 0) return null
  return <div class="error" id={id}>{messages.map((message) => <p key={message}>{message}</p>)}</div>
}

export function RemoveButton({ label, onRemove }: { label: string; onRemove: () => void }) {
  return <button type="button" class="quiet" aria-label={`Remove ${label}`} onClick={onRemove}>Remove</button>
}
