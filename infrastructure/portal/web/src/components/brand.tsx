/** productName is how the portal calls itself. */
export const productName = 'Atoll Infrastructure'

/** consoleName is how the area of administrators calls itself. */
export const consoleName = 'Atoll Console'

/** Logo is an atoll from above: a reef with an opening around a lagoon with islands. It is decoration: the name stands beside it. */
export function Logo({ size = 30 }: { size?: number }) {
  return (
    <svg class="logo" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect class="sea" width="32" height="32" rx="9" />
      <path class="reef" d="M20.6 7.4a9.8 9.8 0 1 1-8.7-.3" />
      <circle class="island" cx="17.2" cy="17.4" r="2.9" />
      <circle class="island" cx="16.3" cy="5.9" r="1.2" />
    </svg>
  )
}
