// Announces new questions to screen readers and as browser notifications.

import { useEffect, useState } from 'react';
import { visible } from '../format';
import { stateCache } from '../state/state-cache';
import { whenAsked } from '../state/live';
import { announce, retire } from '../state/notify';
import { goToQuestion } from '../state/route';

export function Announcer() {
  const [words, setWords] = useState('');
  useEffect(() => {
    const announced = new Set<string>();
    whenAsked((question) => {
      if (announced.has(question.question_id)) return;
      announced.add(question.question_id);
      setWords(`${question.question} ${visible(question.command)}`);
      announce(question, () => goToQuestion(question.question_id));
    });
    return stateCache.questions.subscribe(() => {
      for (const id of announced) {
        if (stateCache.questions.get(id)) continue;
        announced.delete(id);
        retire(id);
      }
    });
  }, []);
  return (
    <div className="hidden" role="alert" data-testid="announcer">
      {words}
    </div>
  );
}
