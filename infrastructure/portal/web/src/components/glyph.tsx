import type { IconNode } from 'lucide'
import { h } from 'preact'

/** Glyph is an icon of lucide. It is decoration: what it means is in the text beside it, or in the name of the control. */
export function Glyph({ icon, size = 18 }: { icon: IconNode; size?: number }) {
  return (
    <svg class="glyph" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      {icon.map(([tag, attributes], index) => h(tag, { key: index, ...attributes } as Record<string, unknown>))}
    </svg>
  )
}
