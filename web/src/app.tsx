// The frame of the page: navigation, connection banner and the current view.

import { useEffect, useRef, type ReactNode } from 'react';
import { errorMessage } from './state/actions';
import { stateCache } from './state/state-cache';
import { nextTheme } from './state/keys';
import { daemon, connection, loaded, tryNow } from './state/live';
import { logout } from './state/login';
import { canNotify, switchNotifying } from './state/notify';
import { showToast } from './state/toasts';
import { notifying, theme } from './state/prefs';
import { route, type Route } from './state/route';
import { useSecond, useTally } from './state/use';
import { useValue } from './state/value';
import { Announcer } from './parts/announcer';
import { Empty, CommandExample } from './parts/empty';
import { Help, openHelp } from './parts/help';
import {
  AutoIcon,
  BellIcon,
  HelpIcon,
  LeaveIcon,
  MessageIcon,
  MoonIcon,
  NowIcon,
  RuleIcon,
  SessionIcon,
  SunIcon,
  TimerIcon,
} from './parts/icons';
import { Link } from './parts/link';
import { Logo } from './parts/logo';
import { NewTerminal } from './parts/new-terminal';
import { NewTimer } from './parts/new-timer';
import { Toasts } from './parts/toasts';
import { QuestionBar } from './parts/question-bar';
import { useUnread } from './state/unread';
import { Login } from './views/login';
import { Messages } from './views/messages';
import { Now } from './views/now';
import { Rules } from './views/rules';
import { Session } from './views/session';
import { Sessions } from './views/sessions';
import { TimerView } from './views/timer';
import { Timers } from './views/timers';

export function App({ refused }: { refused: string }) {
  const state = useValue(connection).state;
  if (state === 'logged_out') {
    return (
      <>
        <Login refused={refused} />
        <Toasts />
      </>
    );
  }
  return (
    <>
      <Frame />
      <Toasts />
      <Help />
      <NewTerminal />
      <NewTimer />
      <Announcer />
    </>
  );
}

const TITLES: Record<Route['view'], string> = {
  now: 'Now',
  timers: 'Timers',
  timer: 'Timer',
  sessions: 'Sessions',
  session: 'Session',
  messages: 'Messages',
  rules: 'Rules',
  not_found: 'Page not found',
};

function Frame() {
  const at = useValue(route);
  const ready = useValue(loaded);
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => {
    // After keyboard navigation the focus moves to the view, unless something in the view has it already.
    const inView = main.current?.contains(document.activeElement) ?? false;
    if (!first.current && !inView) main.current?.focus({ preventScroll: true });
    first.current = false;
  }, [at]);
  return (
    <div className="frame">
      <a className="skip" href="#main" onClick={() => main.current?.focus()}>
        Skip to content
      </a>
      <Rail at={at} />
      <main className="main" id="main" ref={main} tabIndex={-1}>
        <Banner />
        {ready && <QuestionBar at={at} />}
        {ready ? <View at={at} /> : <p className="soft page">Loading…</p>}
      </main>
      <Title at={at} />
    </div>
  );
}

function View({ at }: { at: Route }) {
  switch (at.view) {
    case 'now':
      return <Now />;
    case 'timers':
      return <Timers />;
    case 'timer':
      return <TimerView key={at.id} id={at.id} />;
    case 'sessions':
      return <Sessions />;
    case 'session':
      return <Session key={at.id} id={at.id} />;
    case 'messages':
      return <Messages />;
    case 'rules':
      return <Rules />;
    case 'not_found':
      return (
        <div className="page">
          <h1>Page not found</h1>
          <Empty title={`Nothing at ${at.path}`}>
            <Link href="/">Go to Now</Link>
          </Empty>
        </div>
      );
  }
}

function Title({ at }: { at: Route }) {
  const questions = useTally(stateCache.questions);
  useEffect(() => {
    document.title = `${questions > 0 ? `(${questions}) ` : ''}${TITLES[at.view]} · abide`;
  }, [questions, at]);
  return null;
}

function Rail({ at }: { at: Route }) {
  const questions = useTally(stateCache.questions);
  const sessions = useTally(stateCache.sessions) + useValue(stateCache.unloadedSessions);
  const timers = useTally(stateCache.timers) + useValue(stateCache.unloadedTimers);
  const unread = useUnread(at.view === 'messages');
  const here = at.view === 'session' ? 'sessions' : at.view === 'timer' ? 'timers' : at.view;
  const item = (view: string, href: string, icon: ReactNode, name: string, badge: number, loud = false) => (
    <Link href={href} aria-current={here === view ? 'page' : undefined}>
      {icon} {name}
      {badge > 0 && <span className={`badge ${loud ? 'loud' : ''}`}>{badge > 999 ? '999+' : badge}</span>}
    </Link>
  );
  return (
    <header className="rail">
      <Link href="/" className="brand">
        <Logo /> abide
      </Link>
      <nav className="nav" aria-label="Views">
        {item('now', '/', <NowIcon />, 'Now', questions, true)}
        {item('timers', '/timers', <TimerIcon />, 'Timers', timers)}
        {item('sessions', '/sessions', <SessionIcon />, 'Sessions', sessions)}
        {item('messages', '/messages', <MessageIcon />, 'Messages', unread)}
        {item('rules', '/rules', <RuleIcon />, 'Rules', 0)}
      </nav>
      <div className="rail-foot">
        <Alive />
        <Tools />
      </div>
    </header>
  );
}

function Alive() {
  const { state } = useValue(connection);
  const hello = useValue(daemon);
  const words = state === 'live' ? `Live, abide ${hello?.version ?? ''}` : state === 'broken' ? 'Not connected' : 'Connecting…';
  return (
    <div className="pulse-line" role="status">
      <span className={`dot ${state === 'live' ? 'good' : 'warn'}`} />
      <span>{words}</span>
    </div>
  );
}

const THEMES = {
  system: ['system', <AutoIcon key="system" />],
  light: ['light', <SunIcon key="light" />],
  dark: ['dark', <MoonIcon key="dark" />],
} as const;

function Tools() {
  const chosen = useValue(theme);
  const notify = useValue(notifying);
  const [words, icon] = THEMES[chosen];
  const leave = () => {
    logout().catch((fault: unknown) => showToast({ tone: 'bad', title: 'You are still logged in', text: errorMessage(fault) }));
  };
  return (
    <div className="rail-tools">
      <button
        type="button"
        className="button plain compact icon"
        aria-label={`Theme: ${words}`}
        title={`Theme: ${words}`}
        onClick={nextTheme}
      >
        {icon}
      </button>
      {canNotify() && (
        <button
          type="button"
          className={`button plain compact icon ${notify ? 'on' : ''}`}
          aria-pressed={notify}
          aria-label="Notify me of questions"
          title={notify ? 'Notifications of questions are on' : 'Notify me of questions'}
          onClick={() => void switchNotifying(!notify)}
        >
          <BellIcon />
        </button>
      )}
      <button type="button" className="button plain compact icon" aria-label="Keyboard shortcuts" title="Keyboard shortcuts" onClick={openHelp}>
        <HelpIcon />
      </button>
      <button type="button" className="button plain compact icon" aria-label="Log out" title="Log out" onClick={leave}>
        <LeaveIcon />
      </button>
    </div>
  );
}

/** Says that the connection is lost and when the next attempt is made. */
function Banner() {
  const state = useValue(connection);
  return (
    <div role="status">
      {state.state === 'broken' && (
        <div className="banner">
          <strong>Reconnecting…</strong>
          <span>abide does not answer, so this page may be out of date. Any command starts it:</span>
          <CommandExample command="abide status" />
          {/* Screen readers do not read the passing seconds. */}
          <span aria-hidden="true">
            <NextTry at={state.nextAt} />
          </span>
          <button type="button" className="button compact" onClick={tryNow}>
            Try now
          </button>
        </div>
      )}
    </div>
  );
}

function NextTry({ at }: { at: number }) {
  const second = useSecond();
  const left = Math.ceil((at - second) / 1_000);
  return <span className="numbers">{left > 0 ? `Next try in ${left}s.` : 'Trying…'}</span>;
}
