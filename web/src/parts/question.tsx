// A question to the person: the question, the exact command, and the answers.

import { memo, useEffect, useRef, useState, type KeyboardEvent, type RefObject } from 'react';
import { duration, visible } from '../format';
import { answer, answerCommand } from '../state/actions';
import { type CachedQuestion, stateCache } from '../state/state-cache';
import { shortcuts } from '../state/prefs';
import { wantedQuestion } from '../state/route';
import { useEntry } from '../state/use';
import { useValue } from '../state/value';
import type { QuestionCommand } from '../wire';
import { Link } from './link';
import { withoutTail } from './session';
import { Since, Tail, WholeText } from './text';

const SAID: Record<string, string> = {
  yes: 'Answering yes…',
  no: 'Answering no…',
  quiet: 'Answering yes, no questions for 10 minutes…',
};

const KEYS: Record<string, 'yes' | 'no' | 'quiet'> = { y: 'yes', n: 'no', q: 'quiet' };

/** `page`: the session whose page shows the card. */
export const QuestionCard = memo(function QuestionCard({ id, page }: { id: string; page?: string }) {
  const question = useEntry(stateCache.questions, id);
  const pulse = useEntry(stateCache.pulses, question?.session_id ?? '');
  const session = useEntry(stateCache.sessions, question?.session_id ?? '');
  const card = useRef<HTMLElement>(null);
  const wanted = useValue(wantedQuestion) === id;
  useEffect(() => {
    if (!wanted || !card.current) return;
    wantedQuestion.set(null);
    card.current.focus();
    card.current.scrollIntoView({ block: 'nearest' });
  }, [wanted]);
  if (!question) return null;
  if (question.held) return <CommandQuestion card={card} question={question} held={question.held} />;
  // The session may have been idle for longer before a person could be asked.
  const quietByQuestion = question.asked_at - question.idle * 1_000;
  const quietSince = Math.min(quietByQuestion, Math.max(session?.last_activity ?? 0, pulse?.last_activity ?? 0) || quietByQuestion);
  const { answering } = question;
  const say = (word: 'yes' | 'no' | 'quiet') => void answer(id, word);
  const onKey = (event: KeyboardEvent) => {
    // Only on the card itself, so that a key pressed elsewhere does not answer.
    const word = KEYS[event.key];
    if (!word || !shortcuts.get() || answering || event.target !== event.currentTarget) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    say(word);
  };
  const last = question.last_line ? [question.last_line] : [];
  const lines = question.tail.length > 0 ? question.tail : (pulse?.tail ?? last);
  const title = `${id}-title`;
  return (
    <article ref={card} className="card question" tabIndex={-1} data-stop onKeyDown={onKey} aria-labelledby={title}>
      <h2 id={title}>{question.question}</h2>
      <WholeText className="command" text={question.command} label="Command" />
      <div className="question-rest">
        <div className="facts">
          <span>
            <b>{question.doing}</b>
          </span>
          <span>
            running for{' '}
            <b>
              <Since stamp={question.asked_at - question.running_for * 1_000} least={question.running_for} />
            </b>
          </span>
          <span>
            quiet for{' '}
            <b>
              <Since stamp={quietSince} least={question.idle} />
            </b>
            , limit {duration(question.idle)}
          </span>
          <span>agent {question.agent}</span>
          {question.machine && <span>on {question.machine}</span>}
          {question.session_id !== page && <Link href={`/sessions/${question.session_id}`}>Open session</Link>}
        </div>
        <div className="quoted">
          <span>Last lines</span>
          <Tail lines={lines} label={`Last lines of ${question.session_id}`} empty={session && withoutTail(session)} />
        </div>
        {answering ? (
          <p className="answered" role="status">
            {SAID[answering] ?? `Answering ${answering}…`}
          </p>
        ) : (
          <div className="row-of-buttons">
            <button type="button" className="button primary" onClick={() => say('yes')}>
              Yes, keep waiting
            </button>
            <button type="button" className="button bad" onClick={() => say('no')}>
              No, kill it
            </button>
            <button type="button" className="button" onClick={() => say('quiet')}>
              Yes, and stop asking for 10 minutes
            </button>
          </div>
        )}
      </div>
    </article>
  );
});

const OFFERS: Record<string, string> = {
  once: 'Run it once',
  'this agent': 'Allow for this agent',
  'always here': 'Always in this folder',
  always: 'Always',
  no: 'No',
};

/** A question about a command that a rule holds until a person answers. */
function CommandQuestion({
  card,
  question,
  held,
}: {
  card: RefObject<HTMLElement | null>;
  question: CachedQuestion;
  held: QuestionCommand;
}) {
  const [because, setBecause] = useState('');
  const id = question.question_id;
  const title = `${id}-title`;
  const adding = held.answers.filter((offer) => offer.adds);
  return (
    <article ref={card} className="card question" tabIndex={-1} data-stop aria-labelledby={title}>
      <h2 id={title}>{question.question}</h2>
      <WholeText className="command" text={question.command} label="Command" />
      <div className="question-rest">
        <div className="facts">
          {held.rule && (
            <span>
              rule <b>{visible(held.rule)}</b>
            </span>
          )}
          {held.why && <span>{visible(held.why)}</span>}
          {held.part && held.part !== question.command && <span>because of {visible(held.part)}</span>}
          <span>in {visible(held.folder)}</span>
          <span>agent {question.agent}</span>
          {question.machine && <span>on {question.machine}</span>}
        </div>
        {adding.length > 0 && (
          <details>
            <summary>Rules that the answers add</summary>
            <dl className="rules-added">
              {adding.map((offer) => (
                <div key={offer.answer}>
                  <dt>{OFFERS[offer.answer] ?? offer.answer}</dt>
                  <dd>
                    <pre>{offer.adds}</pre>
                  </dd>
                </div>
              ))}
            </dl>
          </details>
        )}
        {question.answering ? (
          <p className="answered" role="status">
            Answering {question.answering}…
          </p>
        ) : (
          <>
            <label className="field">
              <span>Reason if you say no (the agent reads it)</span>
              <input className="input" value={because} onChange={(event) => setBecause(event.target.value)} />
            </label>
            <div className="row-of-buttons">
              {held.answers.map((offer) => (
                <button
                  key={offer.answer}
                  type="button"
                  className={offer.answer === 'once' ? 'button primary' : offer.answer === 'no' ? 'button bad' : 'button'}
                  onClick={() => void answerCommand(id, offer.answer, offer.answer === 'no' ? because.trim() : '')}
                >
                  {OFFERS[offer.answer] ?? offer.answer}
                </button>
              ))}
            </div>
          </>
        )}
      </div>
    </article>
  );
}
