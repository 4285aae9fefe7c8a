// The rules for commands of agents, the decisions made by them, and what sandboxes refused.

import { useCallback, useEffect, useRef, useState, type ReactNode, type SubmitEvent } from 'react';
import { count, plural } from '../format';
import { errorMessage } from '../state/actions';
import { get, post, withQuery } from '../state/api';
import { stateCache } from '../state/state-cache';
import { LatestResponse } from '../state/latest-response';
import { showToast } from '../state/toasts';
import { useParam } from '../state/route';
import { useTally } from '../state/use';
import type { Audit, AuditLine, AuditVerified, Policy, PolicyRule, PolicyTested, Refusals, SandboxRefusals } from '../wire';
import { ConfirmDialog } from '../parts/dialog';
import { Empty, CommandExample } from '../parts/empty';
import { Link } from '../parts/link';
import { TabbedPage } from '../parts/tabbed-page';
import { Ago, Exact, WholeText } from '../parts/text';

/** Entries per request. */
const PAGE = 50;

export function Rules() {
  return (
    <TabbedPage
      title="Rules"
      tabs={[
        { value: 'rules', name: 'In force', content: <InForce /> },
        { value: 'decisions', name: 'Decisions', content: <Decisions /> },
        { value: 'refusals', name: 'Sandbox', content: <Refused /> },
      ]}
    />
  );
}

const TONES = { allow: 'good', ask: 'warn', deny: 'bad' } as const;
const WORDS = { allow: 'Allow', ask: 'Ask', deny: 'Deny' } as const;

function Decision({ decision }: { decision: PolicyRule['do'] }) {
  return <span className={`chip ${TONES[decision]}`}>{WORDS[decision]}</span>;
}

function InForce() {
  const questions = useTally(stateCache.questions);
  const [policy, setPolicy] = useState<Policy | null>(null);
  const [fault, setFault] = useState('');
  const newest = useRef(new LatestResponse());
  const read = useCallback(async () => {
    try {
      const fresh = await newest.current.of(get<Policy>('/v1/policy'));
      if (!fresh) return;
      setPolicy(fresh);
      setFault('');
    } catch (error) {
      setFault(errorMessage(error));
    }
  }, []);
  // An answer to a question may have added a rule.
  useEffect(() => void read(), [read, questions]);
  if (fault) return <p className="fault">{fault}</p>;
  if (!policy) return <p className="soft">Loading…</p>;
  if (policy.error !== undefined) {
    return (
      <p className="fault" role="alert">
        The rules cannot be used, so all commands of agents are refused: <Exact text={policy.error} className="prose" />
      </p>
    );
  }
  const own = policy.rules.filter((rule) => rule.source !== 'built-in');
  const builtIn = policy.rules.filter((rule) => rule.source === 'built-in');
  return (
    <>
      <TestLine />
      <RuleList title="Yours" rules={own} onRemoved={() => void read()}>
        <span>
          Rules from <code>config.toml</code> and from the answer “Always” are listed here.
        </span>
      </RuleList>
      <RuleList title="Built in" rules={builtIn} onRemoved={() => void read()} />
      <p className="soft small">
        All other commands: {WORDS[policy.otherwise].toLowerCase()}. Command lines that cannot be parsed: {WORDS[policy.unparsed].toLowerCase()}. “Deny”
        always wins. Between “ask” and “allow”, the rule with more words wins.
      </p>
    </>
  );
}

/** Shows what the rules decide about a command line. Nothing is run. */
function TestLine() {
  const [command, setCommand] = useState('');
  const [tested, setTested] = useState<PolicyTested | null>(null);
  const [fault, setFault] = useState('');
  const test = (event: SubmitEvent) => {
    event.preventDefault();
    post<PolicyTested>('/v1/policy/test', { command }).then(
      (answer) => {
        setTested(answer);
        setFault('');
      },
      (error: unknown) => {
        setTested(null);
        setFault(errorMessage(error));
      },
    );
  };
  return (
    <form className="card test-line" onSubmit={test} aria-label="Test a command">
      <label htmlFor="test-command">Test a command. It is not run.</label>
      <div className="test-field">
        <input
          id="test-command"
          className="input code"
          value={command}
          placeholder="cd src && git push -f"
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => setCommand(event.target.value)}
        />
        <button type="submit" className="button primary" disabled={command.trim() === ''}>
          Test
        </button>
      </div>
      <div role="status" className="test-result">
        {tested && <Tested tested={tested} />}
        {fault && <p className="fault">{fault}</p>}
      </div>
    </form>
  );
}

function Tested({ tested }: { tested: PolicyTested }) {
  return (
    <>
      <div className="rule-head">
        <Decision decision={tested.decision} />
        <span>{tested.why ?? 'no rule matches'}</span>
        {tested.rule && <code>{tested.rule}</code>}
      </div>
      {tested.parts.length > 1 && (
        <ul className="parts" aria-label="Commands in it">
          {tested.parts.map((part, place) => (
            <li key={place}>
              <Decision decision={part.decision} /> <Exact text={part.command} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

interface RuleListProps {
  title: string;
  rules: PolicyRule[];
  onRemoved: () => void;
  children?: ReactNode;
}

function RuleList({ title, rules, onRemoved, children }: RuleListProps) {
  return (
    <section className="section" aria-label={title}>
      <div className="section-head">
        <h2>{title}</h2>
        <span className="soft numbers">{count(rules.length)}</span>
      </div>
      {rules.length === 0 ? (
        <Empty title="None yet">{children}</Empty>
      ) : (
        <ul className="rules">
          {grouped(rules).map((group, place) => (
            <li key={place}>
              <Rule rule={group.rule} words={group.words} onRemoved={onRemoved} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

interface Group {
  rule: PolicyRule;
  /** The words of all its rules. */
  words: string[];
}

/** Rules of one name that differ only in their words are one line. */
function grouped(rules: PolicyRule[]): Group[] {
  const groups: Group[] = [];
  const rest = (rule: PolicyRule) => JSON.stringify({ ...rule, run: [] });
  for (const rule of rules) {
    const words = rule.run.filter((word) => word !== '...').join(' ');
    const last = groups.at(-1);
    if (last && rest(last.rule) === rest(rule)) last.words.push(words);
    else groups.push({ rule, words: [words] });
  }
  return groups;
}

const SOURCES: Record<PolicyRule['source'], string> = {
  'built-in': 'built in',
  configuration: 'config.toml',
  always: 'your answer “always”',
  'this agent': 'your answer “this agent”, until the daemon ends',
};

function Rule({ rule, words: all, onRemoved }: Group & { onRemoved: () => void }) {
  const [sure, setSure] = useState(false);
  const words = all.join(', ');
  const remove = () => {
    post(`/v1/policy/rules/${encodeURIComponent(rule.name)}/remove`).then(
      () => {
        showToast({ tone: 'good', title: `Rule ${rule.name} removed` });
        onRemoved();
      },
      (error: unknown) => showToast({ tone: 'bad', title: `Rule ${rule.name} was not removed`, text: errorMessage(error) }),
    );
  };
  return (
    <article className="rule" aria-label={`Rule ${rule.name || words}`}>
      <div className="rule-head">
        <Decision decision={rule.do} />
        <span className="rule-words">
          <Exact text={all.map((each) => `${each} …`).join(', ')} />
          {rule.with.length > 0 && (
            <span className="soft">
              {' '}
              with <Exact text={rule.with.join(' or ')} />
            </span>
          )}
        </span>
        {rule.source === 'always' && (
          <button type="button" className="button compact" aria-label={`Remove rule ${rule.name}`} onClick={() => setSure(true)}>
            Remove…
          </button>
        )}
      </div>
      <div className="facts">
        {rule.name && <code>{rule.name}</code>}
        <span>{SOURCES[rule.source]}</span>
        {rule.why && <Exact text={rule.why} className="prose" />}
        {rule.agent != null && (
          <span>
            for <Exact text={rule.agent} />
          </span>
        )}
        {rule.folder != null && (
          <span>
            in <Exact text={rule.folder} />
          </span>
        )}
        {rule.person_only && <span>only you can say yes</span>}
      </div>
      <ConfirmDialog open={sure} onClose={() => setSure(false)} title={`Remove rule ${rule.name}?`} act="Remove" onYes={remove}>
        <div className="command">
          <Exact text={words} />
        </div>
        <p>From then on, such commands are decided by the other rules. You are asked again where one of them asks.</p>
      </ConfirmDialog>
    </article>
  );
}

/** Pages of a list, newest first, fetched on request. */
function usePages<T>(path: (after: string | undefined) => string, of: (page: { next?: string | null } & object) => T[]) {
  const [found, setFound] = useState<{ items: T[]; next: string | null } | null>(null);
  const [fault, setFault] = useState('');
  const newest = useRef(new LatestResponse());
  const read = useCallback(
    async (after?: string) => {
      try {
        const page = await newest.current.of(get<{ next?: string | null }>(path(after)));
        if (!page) return;
        setFound((old) => ({ items: after === undefined ? of(page) : [...(old?.items ?? []), ...of(page)], next: page.next ?? null }));
        setFault('');
      } catch (error) {
        setFault(errorMessage(error));
      }
    },
    [path, of],
  );
  return { found, fault, read };
}

const EVENTS: Record<string, [string, 'good' | 'warn' | 'bad' | '']> = {
  allow: ['Allowed', 'good'],
  ask: ['Asked', 'warn'],
  deny: ['Denied', 'bad'],
  broken: ['Rules unusable', 'bad'],
  answered: ['Answered', ''],
  expired: ['Expired', ''],
  removed: ['Rule removed', ''],
  refused: ['Refused by sandbox', 'bad'],
};
/** Filter that also shows commands that no rule is about. */
const EVERY = 'every';

const entries = (page: object): AuditLine[] => (page as Audit).entries;

function Decisions() {
  const questions = useTally(stateCache.questions);
  const [event, setEvent] = useParam('event');
  const [q, setQ] = useParam('q');
  const path = useCallback(
    (after: string | undefined) => {
      const filter = event === EVERY ? {} : { event, ruled: true };
      return withQuery('/v1/audit', { ...filter, q, limit: PAGE, after });
    },
    [event, q],
  );
  const { found, fault, read } = usePages(path, entries);
  useEffect(() => void read(), [read, questions]);
  const filtered = event !== '' || q !== '';
  return (
    <>
      <div className="tools">
        <label className="search">
          <span className="hidden">Search decisions</span>
          <input className="input" type="search" data-search placeholder="Search commands, rules and reasons" value={q} onChange={(e) => setQ(e.target.value)} />
        </label>
        <label>
          <span className="hidden">Filter</span>
          <select className="input" value={event} onChange={(e) => setEvent(e.target.value)}>
            <option value="">All</option>
            {Object.entries(EVENTS).map(([name, [words]]) => (
              <option key={name} value={name}>
                {words}
              </option>
            ))}
            <option value={EVERY}>All, and commands without a rule</option>
          </select>
        </label>
      </div>
      {fault && <p className="fault">{fault}</p>}
      {!found && !fault && <p className="soft">Loading…</p>}
      {found?.items.length === 0 && (
        <Empty title={filtered ? 'No matching decisions' : 'No decisions yet'}>
          {!filtered && <span>Decisions of rules appear here. Commands that no rule matches are started; the filter can show them, too.</span>}
        </Empty>
      )}
      {found && found.items.length > 0 && (
        <ul className="decisions" aria-label="Decisions">
          {found.items.map((line, place) => (
            <li key={place}>
              <Decided line={line} />
            </li>
          ))}
        </ul>
      )}
      {found?.next && (
        <button type="button" className="button" onClick={() => void read(found.next ?? undefined)}>
          Show older
        </button>
      )}
      <Chain />
    </>
  );
}

function Decided({ line }: { line: AuditLine }) {
  const [words, tone] = EVENTS[line.event] ?? [line.event, ''];
  return (
    <article className="card decision" tabIndex={-1} data-stop aria-label={`${words}: ${line.command ?? line.rule ?? ''}`}>
      <div className="rule-head">
        <span className={`chip ${tone}`}>{words}</span>
        {line.answer != null && <strong>“{line.answer}”</strong>}
        <span className="soft small">
          {line.agent && <>{line.agent}, </>}
          <Ago stamp={line.at} />
        </span>
      </div>
      {line.command && <WholeText text={line.command} label={`Command of ${line.agent ?? ''}`} className="command" />}
      <div className="facts">
        {line.why != null && <Exact text={line.why} className="prose" />}
        {line.rule != null && <code>{line.rule}</code>}
        {line.folder && (
          <span>
            in <Exact text={line.folder} />
          </span>
        )}
        {line.by != null && <span>by {line.by === 'client' ? 'the client of the agent' : 'a person'}</span>}
      </div>
      {line.event === 'refused' && line.commands?.map((what, place) => <WholeText key={place} text={what} label="Refused" className="command" />)}
      {line.added?.map((text, place) => (
        <WholeText key={place} text={text} label="Rule that was added" className="command" />
      ))}
    </article>
  );
}

/** Checks whether the log of decisions was changed later. */
function Chain() {
  const [said, setSaid] = useState('');
  const check = () => {
    get<AuditVerified>('/v1/audit/verify').then(
      (found) => setSaid(found.intact ? `Intact: ${plural(found.lines, 'line')}. Hash of the last line: ${found.last ?? 'none'}` : `Not intact: ${found.error ?? ''}`),
      (error: unknown) => setSaid(errorMessage(error)),
    );
  };
  return (
    <div className="chain">
      <button type="button" className="button compact" onClick={check}>
        Verify the log
      </button>
      <span className="small" role="status">
        {said}
      </span>
    </div>
  );
}

const sessions = (page: object): SandboxRefusals[] => (page as Refusals).sessions;
const refusalPath = (after: string | undefined) => withQuery('/v1/refusals', { limit: PAGE, after });

function Refused() {
  const alive = useTally(stateCache.sessions);
  const { found, fault, read } = usePages(refusalPath, sessions);
  // The refusals of a session are complete when it has ended.
  useEffect(() => void read(), [read, alive]);
  return (
    <>
      {fault && <p className="fault">{fault}</p>}
      {!found && !fault && <p className="soft">Loading…</p>}
      {found?.items.length === 0 && (
        <Empty title="No sandbox has refused anything">
          <span>Turn on the sandbox in <code>config.toml</code>, or try it:</span>
          <CommandExample command="abide run --sandbox workspace-write -- touch /etc/x" />
        </Empty>
      )}
      {found && found.items.length > 0 && (
        <ul className="decisions" aria-label="Refusals">
          {found.items.map((session) => (
            <li key={session.session_id}>
              <OfSession session={session} />
            </li>
          ))}
        </ul>
      )}
      {found?.next && (
        <button type="button" className="button" onClick={() => void read(found.next ?? undefined)}>
          Show older
        </button>
      )}
    </>
  );
}

function OfSession({ session }: { session: SandboxRefusals }) {
  return (
    <article className="card decision" tabIndex={-1} data-stop aria-label={`Refused in ${session.session_id}`}>
      <div className="rule-head">
        {session.count > 0 && <span className="chip bad">{plural(session.count, 'refusal')}</span>}
        {session.planted.length > 0 && <span className="chip warn">{count(session.planted.length)} planted</span>}
        <span className="soft small">
          {session.agent}, <Ago stamp={session.created_at} />, {session.mode}, network {session.network}
        </span>
        <Link className="button compact end" href={`/sessions/${session.session_id}`} aria-label={`Open session ${session.session_id}`}>
          Open session
        </Link>
      </div>
      <WholeText text={session.command} label={`Command of ${session.session_id}`} className="command" />
      {session.refused.length > 0 && (
        <ul className="parts" aria-label="Refused">
          {session.refused.map((refusal, place) => (
            <li key={place}>
              <span className="soft">{refusal.kind}</span> <Exact text={refusal.what} />
            </li>
          ))}
        </ul>
      )}
      {session.planted.length > 0 && (
        <ul className="parts" aria-label="Planted: other programs may run or obey it">
          {session.planted.map((name) => (
            <li key={name}>
              <span className="soft">planted</span> <Exact text={name} />
            </li>
          ))}
        </ul>
      )}
    </article>
  );
}
