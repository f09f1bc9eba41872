import type { Condition } from '../types'
import { Age } from './parts'

/** Conditions is the table of the conditions of an object. */
export function Conditions({ conditions }: { conditions: Condition[] }) {
  if (conditions.length === 0) return null
  return (
    <section>
      <h2 id="conditions">Conditions</h2>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby="conditions">
        <table class="stack">
          <thead><tr><th scope="col">Type</th><th scope="col">Status</th><th scope="col">Reason</th><th scope="col">Message</th><th scope="col">Since</th></tr></thead>
          <tbody>
            {conditions.map(({ type, status, reason, message, lastTransitionTime }) => (
              <tr key={type}>
                <th scope="row">{type}</th>
                <td data-label="Status">{status}</td>
                <td data-label="Reason">{reason}</td>
                <td data-label="Message" class="text">{message}</td>
                <td data-label="Since"><Age time={lastTransitionTime} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  )
}
