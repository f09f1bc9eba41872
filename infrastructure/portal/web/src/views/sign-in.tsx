import { FolderTree, Globe, KeyRound, ShieldCheck } from 'lucide'
import { useState } from 'preact/hooks'
import { Dialog } from '../components/dialog'
import { Logo, productName } from '../components/brand'
import { Glyph } from '../components/glyph'
import { Command, Failure, Title } from '../components/parts'
import { usePortal } from '../context'

/** SignInForm asks for a token, or sends the user to the issuer. */
function SignInForm({ workspace, problem }: { workspace: string; problem: unknown }) {
  const { session, drafts } = usePortal()
  const [token, setToken] = useState('')
  const [error, setError] = useState<unknown>(problem)
  const [busy, setBusy] = useState(false)
  const attempt = async (work: () => Promise<void>) => {
    setBusy(true)
    setError(undefined)
    try {
      await work()
    } catch (reason) {
      setError(reason)
    } finally {
      setBusy(false)
    }
  }
  return (
    <>
      {error !== undefined && <Failure error={error} what="sign in" />}
      {session.oidc && (
        <p class="issuer">
          <button type="button" class="primary" disabled={busy} onClick={() => void attempt(async () => {
            drafts.store()
            await session.oidc!.begin()
          })}><Glyph icon={KeyRound} size={16} />Sign in with your organization</button>
        </p>
      )}
      {session.oidc && <p class="or">or with a token</p>}
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

/** SignIn is the page of a user who has not signed in: where they are, and how they get in. */
export function SignIn({ workspace, problem }: { workspace: string; problem: unknown }) {
  return (
    <div class="sign-in">
      <div class="about">
        <p class="name"><Logo size={48} /> {productName}</p>
        <p>
          The catalogue of your platform: create databases, applications and whatever else it offers in your workspace, see how they are, and
          get what you need to connect.
        </p>
        <ul>
          <li><Glyph icon={Globe} /><span>You are at <strong>{location.host}</strong></span></li>
          {workspace && <li><Glyph icon={FolderTree} /><span>You then see the workspace <code>{workspace}</code></span></li>}
          <li><Glyph icon={ShieldCheck} /><span>You have the rights that you have with kubectl, and no others</span></li>
        </ul>
      </div>
      <div class="enter">
        <Title text="Sign in" />
        <SignInForm workspace={workspace} problem={problem} />
        <details>
          <summary>Where do I find a token?</summary>
          <p>If your kubeconfig has one, this prints it:</p>
          <Command text="kubectl config view --minify --raw --output jsonpath='{.users[0].user.token}'" />
          <p>
            If it prints nothing, you use kubectl with a certificate or another program. Then ask who runs the platform, or have kubectl make a
            token of a service account of your workspace:
          </p>
          <Command text="kubectl create token NAME" />
        </details>
      </div>
    </div>
  )
}

/** SignInAgain is shown over a page whose credentials have expired: what was typed there stays. */
export function SignInAgain({ workspace }: { workspace: string }) {
  const { session, drafts } = usePortal()
  return (
    <Dialog title="Sign in again">
      <p>Your credentials have expired, or are not accepted any more. What you have typed is kept.</p>
      <SignInForm workspace={workspace} problem={undefined} />
      <p>
        <button type="button" class="quiet" onClick={() => {
          drafts.clear()
          session.signOut()
        }}>Sign out instead</button>
      </p>
    </Dialog>
  )
}
