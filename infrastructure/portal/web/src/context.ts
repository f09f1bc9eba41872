import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { API } from './api'
import type { Drafts } from './drafts'
import type { Session } from './session'
import type { Store } from './store'
import type { Config } from './types'
import type { Watches } from './watches'

/** Portal is what all views share. */
export interface Portal {
  config: Config
  session: Session
  api: API
  drafts: Drafts
  watches: Watches
  /** announce has screen readers say something. */
  announce(text: string): void
}

export const PortalContext = createContext<Portal | undefined>(undefined)
export const StoreContext = createContext<Store | undefined>(undefined)

export function usePortal(): Portal {
  return useContext(PortalContext)!
}

/** useStore returns what is known of the workspace of the view. */
export function useStore(): Store {
  return useContext(StoreContext)!
}
