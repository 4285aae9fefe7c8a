// A page with tabs. The chosen tab is in the address, except for the first one.

import { Tabs } from '@base-ui/react/tabs';
import type { ReactNode } from 'react';
import { useParam } from '../state/route';

interface Tab {
  value: string;
  name: string;
  content: ReactNode;
}

interface Props {
  title: string;
  tabs: [Tab, ...Tab[]];
  /** What stands at the end of the heading. */
  action?: ReactNode;
}

export function TabbedPage({ title, tabs, action }: Props) {
  const [tab, setTab] = useParam('tab');
  const first = tabs[0].value;
  const known = tabs.some(({ value }) => value === tab);
  return (
    <div className="page">
      <Tabs.Root value={known ? tab : first} onValueChange={(value: string) => setTab(value === first ? '' : value)}>
        <header className="page-head">
          <h1>{title}</h1>
          <Tabs.List className="tabs">
            {tabs.map(({ value, name }) => (
              <Tabs.Tab className="tab" value={value} key={value}>
                {name}
              </Tabs.Tab>
            ))}
          </Tabs.List>
          {action ? <div className="end">{action}</div> : null}
        </header>
        {tabs.map(({ value, content }) => (
          <Tabs.Panel value={value} className="section panel" key={value}>
            {content}
          </Tabs.Panel>
        ))}
      </Tabs.Root>
    </div>
  );
}
