// The corner where notes come up.

import { Toast } from '@base-ui/react/toast';
import { notes } from '../state/notes';
import { CloseIcon } from './icons';

function Shown() {
  const { toasts } = Toast.useToastManager();
  return toasts.map((toast) => (
    <Toast.Root key={toast.id} toast={toast} className="note" data-type={toast.type} swipeDirection={[]}>
      <Toast.Title render={<h3 />} />
      <Toast.Close className="button plain compact icon" aria-label="Dismiss">
        <CloseIcon />
      </Toast.Close>
      <Toast.Description />
    </Toast.Root>
  ));
}

export function Notes() {
  return (
    <Toast.Provider toastManager={notes} limit={4}>
      <Toast.Portal>
        <Toast.Viewport className="notes">
          <Shown />
        </Toast.Viewport>
      </Toast.Portal>
    </Toast.Provider>
  );
}
