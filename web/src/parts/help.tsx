// Help: the keyboard shortcuts, and the switch that turns single-key shortcuts off.

import { Switch } from '@base-ui/react/switch';
import { setShortcuts, shortcuts } from '../state/prefs';
import { useValue, Value } from '../state/value';
import { ModalDialog } from './dialog';

const shown = new Value(false);

export function openHelp(): void {
  shown.set(true);
}

const KEYS: [string[], string][] = [
  [['1'], 'Now'],
  [['2'], 'Timers'],
  [['3'], 'Sessions'],
  [['4'], 'Messages'],
  [['5'], 'Rules'],
  [['/'], 'Search the list'],
  [['c'], 'New terminal'],
  [['j', 'k'], 'Next and previous card or row; in a list also the arrows, Home and End'],
  [['y', 'n'], 'Answer the question that has the focus'],
  [['q'], 'Yes, and stop asking for 10 minutes'],
  [['d'], 'Theme: light, dark or system'],
  [['F6'], 'Go to notifications'],
  [['?'], 'This help'],
];

export function Help() {
  const open = useValue(shown);
  const on = useValue(shortcuts);
  return (
    <ModalDialog open={open} onClose={() => shown.set(false)} title="Keyboard shortcuts">
      <dl className="keys">
        {KEYS.map(([keys, what]) => (
          <div key={what} className="pair">
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <div className="switch-line">
        <label htmlFor="single-keys">Single-letter shortcuts</label>
        <Switch.Root id="single-keys" className="switch" checked={on} onCheckedChange={setShortcuts}>
          <Switch.Thumb />
        </Switch.Root>
      </div>
      <div className="end">
        <button type="button" className="button" onClick={() => shown.set(false)}>
          Close
        </button>
      </div>
    </ModalDialog>
  );
}
