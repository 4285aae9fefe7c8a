// Dialogs: a frame for all of them, and a confirmation before actions that cannot be undone.

import { AlertDialog } from '@base-ui/react/alert-dialog';
import { Dialog } from '@base-ui/react/dialog';
import type { ReactNode } from 'react';

interface ModalDialogProps {
  open: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
}

export function ModalDialog({ open, onClose, title, children }: ModalDialogProps) {
  return (
    <Dialog.Root open={open} onOpenChange={(is) => !is && onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className="backdrop" />
        <Dialog.Popup className="dialog">
          <Dialog.Title>{title}</Dialog.Title>
          {children}
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

interface ConfirmDialogProps extends ModalDialogProps {
  act: string;
  onYes: () => void;
}

export function ConfirmDialog({ open, onClose, title, children, act, onYes }: ConfirmDialogProps) {
  const yes = () => {
    onClose();
    onYes();
  };
  return (
    <AlertDialog.Root open={open} onOpenChange={(is) => !is && onClose()}>
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className="backdrop" />
        <AlertDialog.Popup className="dialog">
          <AlertDialog.Title>{title}</AlertDialog.Title>
          <AlertDialog.Description render={<div />}>{children}</AlertDialog.Description>
          <div className="end">
            <AlertDialog.Close className="button">Cancel</AlertDialog.Close>
            <button type="button" className="button bad" onClick={yes}>
              {act}
            </button>
          </div>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
