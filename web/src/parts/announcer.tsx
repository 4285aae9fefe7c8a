// New questions are read out, and shown by the system where that is wanted.

import { useEffect, useState } from 'react';
import { visible } from '../format';
import { house } from '../state/house';
import { whenAsked } from '../state/live';
import { announce, retire } from '../state/notify';
import { goToQuestion } from '../state/route';

export function Announcer() {
  const [words, setWords] = useState('');
  useEffect(() => {
    const told = new Set<string>();
    whenAsked((question) => {
      if (told.has(question.question_id)) return;
      told.add(question.question_id);
      setWords(`${question.question} ${visible(question.command)}`);
      announce(question, () => goToQuestion(question.question_id));
    });
    return house.questions.subscribe(() => {
      for (const id of told) {
        if (house.questions.get(id)) continue;
        told.delete(id);
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
