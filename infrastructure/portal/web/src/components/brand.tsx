/** productName is how the portal calls itself. */
export const productName = 'Atoll Infrastructure'

/** Logo is an atoll from above: a reef around a lagoon, with an opening and an island. It is decoration: the name stands beside it. */
export function Logo({ size = 28 }: { size?: number }) {
  return (
    <svg class="logo" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <circle class="lagoon" cx="16" cy="16" r="15" />
      <path class="reef" d="M20.5 6.2a10.8 10.8 0 1 1-9.9.4" />
      <circle class="island" cx="18" cy="17" r="3" />
    </svg>
  )
}
