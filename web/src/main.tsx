// Where the page begins.

import { CSPProvider } from '@base-ui/react/csp-provider';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { App } from './app';
import { sentence } from './state/acts';
import { whenStranger } from './state/api';
import { followKeys } from './state/keys';
import { connect, disconnect } from './state/live';
import { login, takeCode } from './state/login';
import { applyTheme } from './state/prefs';
import { followHistory } from './state/route';
import './style/base.css';
import './style/frame.css';
import './style/views.css';
import './style/log.css';

applyTheme();
followHistory();
followKeys();
whenStranger(disconnect);

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
    // A link that was used before does no harm to who is logged in already.
    connect();
    return sentence(fault);
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
