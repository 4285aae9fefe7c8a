// The corner of the page where toasts appear.

import { Toast } from '@base-ui/react/toast';
import { toastManager } from '../state/toasts';
import { CloseIcon } from './icons';

function Shown() {
  const { toasts } = Toast.useToastManager();
  return toasts.map((toast) => (
    <Toast.Root key={toast.id} toast={toast} className="toast" data-type={toast.type} swipeDirection={[]}>
      <Toast.Title render={<h3 />} />
      <Toast.Close className="button plain compact icon" aria-label="Dismiss">
        <CloseIcon />
      </Toast.Close>
      <Toast.Description />
    </Toast.Root>
  ));
}

export function Toasts() {
  return (
    <Toast.Provider toastManager={toastManager} limit={4}>
      <Toast.Portal>
        <Toast.Viewport className="toasts">
          <Shown />
        </Toast.Viewport>
      </Toast.Portal>
    </Toast.Provider>
  );
}
