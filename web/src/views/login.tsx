// The login form.

import { useState } from 'react';
import { errorMessage } from '../state/actions';
import { login } from '../state/login';
import { CommandExample } from '../parts/empty';
import { Logo } from '../parts/logo';

export function Login({ refused }: { refused: string }) {
  const [text, setText] = useState('');
  const [fault, setFault] = useState(refused);
  const [busy, setBusy] = useState(false);
  const enter = async () => {
    setBusy(true);
    try {
      await login(text);
    } catch (error) {
      setFault(errorMessage(error));
      setBusy(false);
    }
  };
  return (
    <main className="gate">
      <div className="card">
        <div className="brand">
          <Logo /> abide
        </div>
        <div className="section">
          <h1>Log in</h1>
          <p className="soft">
            Run this in a terminal on the machine where abide runs. It opens this page and logs you in:
          </p>
          <CommandExample command="abide open" />
        </div>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void enter();
          }}
        >
          <label className="field">
            <span>Or paste the link or code it prints</span>
            <input
              className="input code"
              value={text}
              onChange={(event) => setText(event.target.value)}
              autoComplete="one-time-code"
              autoCapitalize="off"
              spellCheck={false}
              required
            />
          </label>
          {fault && (
            <p className="fault" role="alert">
              {fault}
            </p>
          )}
          <button type="submit" className="button primary" disabled={busy || text.trim() === ''}>
            Log in
          </button>
        </form>
      </div>
    </main>
  );
}
