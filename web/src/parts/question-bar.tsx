// A question at the top of every view that does not show it already, so that it can be answered in any view.

import { useState } from 'react';
import { stateCache, type CachedQuestion } from '../state/state-cache';
import type { KeyedStore } from '../state/keyed-store';
import type { Route } from '../state/route';
import { useIds, useEntry } from '../state/use';
import { ModalDialog } from './dialog';
import { QuestionCard } from './question';
import { OneLine } from './text';

function oldestFirst(store: KeyedStore<CachedQuestion>): string[] {
  return [...store.all()].sort((a, b) => a.asked_at - b.asked_at).map((question) => question.question_id);
}

export function QuestionBar({ at }: { at: Route }) {
  const ids = useIds(stateCache.questions, oldestFirst);
  const [open, setOpen] = useState<string | null>(null);
  const isShown = (id: string) =>
    at.view === 'now' || (at.view === 'session' && stateCache.questions.get(id)?.session_id === at.id);
  const [first, ...others] = ids.filter((id) => !isShown(id));
  const question = useEntry(stateCache.questions, first ?? '');
  if (first === undefined || !question) return null;
  return (
    <aside className="question-bar" aria-label="Open question">
      <strong>{question.question}</strong>
      <OneLine text={question.command} />
      {others.length > 0 && <span className="badge loud">+{others.length}</span>}
      <button type="button" className="button compact primary" onClick={() => setOpen(first)}>
        Answer
      </button>
      {open === first && (
        <ModalDialog open onClose={() => setOpen(null)} title="Question">
          <QuestionCard id={first} />
        </ModalDialog>
      )}
    </aside>
  );
}
