import { useLayoutEffect, useRef } from 'preact/hooks'
import { Raw } from '../components/parts'
import { formatPath } from '../errors'
import { fieldID } from './context'
import type { LabelledError, Validation } from './use-form'

/**
 * Summary says after an attempt to send what is wrong. Where there is a form, the message about a field stands at the field, and here is the
 * way to it; what belongs to no field, and everything about a text, is said here. It takes the focus.
 */
export function Summary({ validation, asYAML }: { validation: Validation; asYAML: boolean }) {
  const { general, fields, raw, complete, attempts } = validation
  const element = useRef<HTMLDivElement>(null)
  // Before the browser paints: what users type into a field after they have seen the message is not lost.
  useLayoutEffect(() => {
    if (attempts > 0) element.current?.focus()
  }, [attempts])
  const whole = fields.filter(({ path }) => asYAML ? complete : path.length < 2)
  const linked = asYAML || !complete ? [] : first(fields.filter(({ path }) => path.length >= 2))
  if (!general && whole.length + linked.length === 0) return null
  return (
    <div class="summary" role="alert" tabIndex={-1} ref={element}>
      <h2>{general ? 'That did not work' : 'Some values are not right'}</h2>
      {general && <p>{general}</p>}
      {whole.length > 0 && <ul>{whole.map(({ path, label, message }) => <li key={formatPath(path) + message}>{label && <strong>{label}: </strong>}{message}</li>)}</ul>}
      {linked.length > 0 && (
        <>
          <p>Look at:</p>
          <ul>
            {linked.map(({ path, label }) => (
              <li key={formatPath(path)}>
                <a href={`#${fieldID(path)}`} onClick={(event) => {
                  event.preventDefault()
                  document.getElementById(fieldID(path))?.focus()
                }}>{label}</a>
              </li>
            ))}
          </ul>
        </>
      )}
      <Raw text={raw} />
    </div>
  )
}

/** first keeps the first error of each field. */
function first(errors: LabelledError[]): LabelledError[] {
  return errors.filter(({ path }, index) => errors.findIndex((other) => formatPath(other.path) === formatPath(path)) === index)
}
