import { useEffect, useRef } from 'preact/hooks'
import { formatPath } from '../errors'
import { fieldID } from './context'
import type { Validation } from './use-form'

/** Summary lists everything that is wrong after an attempt to send, with links to the fields. It takes the focus. */
export function Summary({ validation }: { validation: Validation }) {
  const { general, fields, complete, attempts } = validation
  const element = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (attempts > 0) element.current?.focus()
  }, [attempts])
  const shown = complete ? fields : fields.filter(({ path }) => path.length < 2)
  if (!general && shown.length === 0) return null
  return (
    <div class="summary" role="alert" tabIndex={-1} ref={element}>
      <h2>{general ? 'That did not work' : 'Some values are not right'}</h2>
      {general && <p>{general}</p>}
      {shown.length > 0 && (
        <ul>
          {shown.map(({ path, message }) => (
            <li key={formatPath(path) + message}>
              {path.length < 2 ? message : (
                <a href={`#${fieldID(path)}`} onClick={(event) => {
                  event.preventDefault()
                  document.getElementById(fieldID(path))?.focus()
                }}>{formatPath(path.slice(path[0] === 'spec' ? 1 : 0))}: {message}</a>
              )}
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
