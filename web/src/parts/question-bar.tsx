// A question on top of every view that does not show it already: it can be answered wherever the person is.

import { useState } from 'react';
import { house, type HeldQuestion } from '../state/house';
import type { Keyed } from '../state/keyed';
import type { Route } from '../state/route';
import { useIds, useThing } from '../state/use';
import { Box } from './dialog';
import { QuestionCard } from './question';
import { OneLine } from './text';

function oldestFirst(store: Keyed<HeldQuestion>): string[] {
  return [...store.all()].sort((a, b) => a.asked_at - b.asked_at).map((question) => question.question_id);
}

export function QuestionBar({ at }: { at: Route }) {
  const ids = useIds(house.questions, oldestFirst);
  const [open, setOpen] = useState<string | null>(null);
  const isShown = (id: string) =>
    at.view === 'now' || (at.view === 'session' && house.questions.get(id)?.session_id === at.id);
  const [first, ...others] = ids.filter((id) => !isShown(id));
  const question = useThing(house.questions, first ?? '');
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
        <Box open onClose={() => setOpen(null)} title="Question">
          <QuestionCard id={first} />
        </Box>
      )}
    </aside>
  );
}
