// The frame: the rail, the banner, the view that the address names.

import { useEffect, useRef, type ReactNode } from 'react';
import { sentence } from './state/acts';
import { house } from './state/house';
import { nextTheme } from './state/keys';
import { daemon, link, loaded, tryNow } from './state/live';
import { logout } from './state/login';
import { canNotify, switchNotifying } from './state/notify';
import { tell } from './state/notes';
import { notifying, theme } from './state/prefs';
import { route, type Route } from './state/route';
import { useSecond, useTally } from './state/use';
import { useValue } from './state/value';
import { Announcer } from './parts/announcer';
import { Empty, Try } from './parts/empty';
import { Help, openHelp } from './parts/help';
import {
  AutoIcon,
  BellIcon,
  HelpIcon,
  LeaveIcon,
  MessageIcon,
  MoonIcon,
  NowIcon,
  SessionIcon,
  SunIcon,
  TimerIcon,
} from './parts/icons';
import { Link } from './parts/link';
import { Mark } from './parts/mark';
import { NewTerminal } from './parts/new-terminal';
import { NewTimer } from './parts/new-timer';
import { Notes } from './parts/notes';
import { QuestionBar } from './parts/question-bar';
import { useUnread } from './state/unread';
import { Login } from './views/login';
import { Messages } from './views/messages';
import { Now } from './views/now';
import { Session } from './views/session';
import { Sessions } from './views/sessions';
import { TimerView } from './views/timer';
import { Timers } from './views/timers';

export function App({ refused }: { refused: string }) {
  const state = useValue(link).state;
  if (state === 'stranger') {
    return (
      <>
        <Login refused={refused} />
        <Notes />
      </>
    );
  }
  return (
    <>
      <Frame />
      <Notes />
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
  nowhere: 'Nowhere',
};

function Frame() {
  const at = useValue(route);
  const ready = useValue(loaded);
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => {
    // Whoever goes somewhere by keyboard continues there, if nothing in the view has taken the focus already.
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
    case 'nowhere':
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
  const questions = useTally(house.questions);
  useEffect(() => {
    document.title = `${questions > 0 ? `(${questions}) ` : ''}${TITLES[at.view]} · abide`;
  }, [questions, at]);
  return null;
}

function Rail({ at }: { at: Route }) {
  const questions = useTally(house.questions);
  const sessions = useTally(house.sessions) + useValue(house.laterSessions);
  const timers = useTally(house.timers) + useValue(house.moreTimers);
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
        <Mark /> abide
      </Link>
      <nav className="nav" aria-label="Views">
        {item('now', '/', <NowIcon />, 'Now', questions, true)}
        {item('timers', '/timers', <TimerIcon />, 'Timers', timers)}
        {item('sessions', '/sessions', <SessionIcon />, 'Sessions', sessions)}
        {item('messages', '/messages', <MessageIcon />, 'Messages', unread)}
      </nav>
      <div className="rail-foot">
        <Alive />
        <Tools />
      </div>
    </header>
  );
}

function Alive() {
  const { state } = useValue(link);
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
  system: ['as the system has it', <AutoIcon key="system" />],
  light: ['light', <SunIcon key="light" />],
  dark: ['dark', <MoonIcon key="dark" />],
} as const;

function Tools() {
  const chosen = useValue(theme);
  const notify = useValue(notifying);
  const [words, icon] = THEMES[chosen];
  const leave = () => {
    logout().catch((fault: unknown) => tell({ tone: 'bad', title: 'You are still logged in', text: sentence(fault) }));
  };
  return (
    <div className="rail-tools">
      <button
        type="button"
        className="button plain compact icon"
        aria-label={`Colours: ${words}`}
        title={`Colours: ${words}`}
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
      <button type="button" className="button plain compact icon" aria-label="Keys" title="Keys" onClick={openHelp}>
        <HelpIcon />
      </button>
      <button type="button" className="button plain compact icon" aria-label="Log out" title="Log out" onClick={leave}>
        <LeaveIcon />
      </button>
    </div>
  );
}

/** Says that the page is not connected, what is known and what will happen. */
function Banner() {
  const state = useValue(link);
  return (
    <div role="status">
      {state.state === 'broken' && (
        <div className="banner">
          <strong>Reconnecting…</strong>
          <span>
            abide does not answer, so what you see may be old. Any command starts it: <Try command="abide status" />{' '}
            {/* Seconds that pass are shown, not read out. */}
            <span aria-hidden="true">
              <NextTry at={state.nextAt} />
            </span>
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
