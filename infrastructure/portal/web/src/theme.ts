/** Theme is light, dark, or as the system has it. It is all that is kept when the tab is closed. */
export type Theme = 'system' | 'light' | 'dark'

const storageKey = 'portal.theme'

export function theme(): Theme {
  const stored = localStorage.getItem(storageKey)
  return stored === 'light' || stored === 'dark' ? stored : 'system'
}

export function setTheme(chosen: Theme): void {
  localStorage.setItem(storageKey, chosen)
  applyTheme()
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme()
}
