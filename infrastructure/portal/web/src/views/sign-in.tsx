import { useState } from 'preact/hooks'
import { Dialog } from '../components/dialog'
import { Notice, Title } from '../components/parts'
import { usePortal } from '../context'
import { explain } from '../errors'

/** SignInForm asks for a token, or sends the user to the issuer. */
function SignInForm({ workspace, problem }: { workspace: string; problem: string }) {
  const { session, drafts } = usePortal()
  const [token, setToken] = useState('')
  const [error, setError] = useState(problem)
  const [busy, setBusy] = useState(false)
  const attempt = async (work: () => Promise<void>) => {
    setBusy(true)
    setError('')
    try {
      await work()
    } catch (reason) {
      setError(explain(reason, 'sign in'))
    } finally {
      setBusy(false)
    }
  }
  return (
    <>
      {error && <Notice kind="error">{error}</Notice>}
      {session.oidc && (
        <p>
          <button type="button" class="primary" disabled={busy} onClick={() => void attempt(async () => {
            drafts.store()
            await session.oidc!.begin()
          })}>Sign in with your organization</button>
        </p>
      )}
      <form onSubmit={(event) => {
        event.preventDefault()
        void attempt(() => session.signIn({ token: token.trim() }, workspace || 'root'))
      }}>
        <div class="field">
          <div class="above">
            <label for="token">Token</label>
            <input id="token" type="password" autocomplete="off" spellcheck={false} required value={token} aria-describedby="token-hint"
              onInput={(event) => setToken(event.currentTarget.value)} />
          </div>
          <p class="hint" id="token-hint">
            The bearer token with which you use kubectl. It stays in this tab, until you sign out or close it.
          </p>
        </div>
        <button type="submit" class={session.oidc ? '' : 'primary'} disabled={busy}>{busy ? 'Signing in…' : 'Sign in'}</button>
      </form>
    </>
  )
}

/** SignIn is the page of a user who has not signed in. */
export function SignIn({ workspace, problem }: { workspace: string; problem: string }) {
  return (
    <div class="narrow">
      <Title text="Sign in" />
      <SignInForm workspace={workspace} problem={problem} />
    </div>
  )
}

/** SignInAgain is shown over a page whose credentials have expired: what was typed there stays. */
export function SignInAgain({ workspace }: { workspace: string }) {
  const { session, drafts } = usePortal()
  return (
    <Dialog title="Sign in again">
      <p>Your credentials have expired, or are not accepted any more. What you have typed is kept.</p>
      <SignInForm workspace={workspace} problem="" />
      <p>
        <button type="button" class="quiet" onClick={() => {
          drafts.clear()
          session.signOut()
        }}>Sign out instead</button>
      </p>
    </Dialog>
  )
}
