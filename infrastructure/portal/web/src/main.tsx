import { render } from 'preact'
import { API } from './api'
import { App } from './app'
import { Toasts } from './components/toasts'
import type { Portal } from './context'
import { Drafts } from './drafts'
import { parse, signInAt } from './router'
import { Session } from './session'
import { applyTheme } from './theme'
import type { Config } from './types'
import { Watches } from './watches'

function Root({ portal, problem }: { portal: Portal; problem: unknown }) {
  return (
    <>
      <App portal={portal} problem={problem} />
      <Toasts subscribe={(announce) => {
        portal.announce = announce
      }} />
    </>
  )
}

/** readConfig asks again where no answer comes: without it, the page stays empty. */
async function readConfig(): Promise<Config> {
  for (let attempt = 1; ; attempt++) {
    try {
      const response = await fetch('config.json', { credentials: 'omit', cache: 'no-store', signal: AbortSignal.timeout(10_000) })
      if (!response.ok) throw new Error(`The server answered ${response.status}.`)
      return (await response.json()) as Config
    } catch (error) {
      if (attempt === 3) throw error
    }
  }
}

async function start(root: HTMLElement): Promise<void> {
  applyTheme()
  const config = await readConfig()
  const session = new Session(config)
  let problem: unknown
  try {
    const tokens = await session.oidc?.complete()
    if (tokens) await session.signIn(tokens, signInAt(parse(location.hash)) || 'root')
  } catch (error) {
    problem = error
  }
  const portal: Portal = { config, session, api: new API(session), watches: new Watches(new API(session, true)), drafts: new Drafts(), announce: () => {} }
  render(<Root portal={portal} problem={problem} />, root)
}

const root = document.getElementById('root')!
start(root).catch((error: Error) => {
  root.textContent = `The page cannot start: ${error.message} Load it again.`
})
