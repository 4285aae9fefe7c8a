// A button that opens a menu. The menu is created when it is opened, since a list has many such buttons.

import { Menu } from '@base-ui/react/menu';
import { useRef, useState, type ReactNode } from 'react';

interface Props {
  className: string;
  label?: string;
  align: 'start' | 'end';
  tabIndex?: number;
  /** Content of the button. */
  face: ReactNode;
  children: ReactNode;
}

export function MenuButton({ className, label, align, tabIndex, face, children }: Props) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  return (
    <>
      <button
        ref={button}
        type="button"
        className={className}
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={open}
        tabIndex={tabIndex}
        onClick={() => setOpen(true)}
      >
        {face}
      </button>
      {open && (
        <Menu.Root open onOpenChange={setOpen}>
          {/* Inside a landmark, so that screen readers find it. */}
          <Menu.Portal container={document.getElementById('main')}>
            <Menu.Positioner className="menu-place" anchor={button} sideOffset={6} align={align}>
              <Menu.Popup className="menu" finalFocus={button}>
                {children}
              </Menu.Popup>
            </Menu.Positioner>
          </Menu.Portal>
        </Menu.Root>
      )}
    </>
  );
}
