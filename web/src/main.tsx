// Entry point of the page.

import { CSPProvider } from '@base-ui/react/csp-provider';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { App } from './app';
import { errorMessage } from './state/actions';
import { whenLoggedOut } from './state/api';
import { followKeys } from './state/keys';
import { connect, disconnect } from './state/live';
import { isLogin, login, takeCode } from './state/login';
import { applyTheme } from './state/prefs';
import { followHistory } from './state/route';
import './style/base.css';
import './style/frame.css';
import './style/views.css';
import './style/rules.css';
import './style/log.css';

applyTheme();
followHistory();
followKeys();
whenLoggedOut(disconnect);
// A login link that is pasted into the address bar of this page changes only the fragment, which loads nothing.
addEventListener('hashchange', () => {
  if (isLogin(location.hash)) location.reload();
});

async function enter(): Promise<string> {
  const code = takeCode();
  if (code === null) {
    connect();
    return '';
  }
  try {
    await login(code);
    return '';
  } catch (fault) {
    // A login link that was used before does not end an existing login.
    connect();
    return errorMessage(fault);
  }
}

const place = document.getElementById('root');
if (place) {
  const root = createRoot(place);
  const draw = (refused: string) =>
    root.render(
      <StrictMode>
        <CSPProvider disableStyleElements>
          <App refused={refused} />
        </CSPProvider>
      </StrictMode>,
    );
  void enter().then(draw);
}
