// Dialogs: a frame for all of them, a form in one, and a confirmation before actions that cannot be undone.

import { AlertDialog } from '@base-ui/react/alert-dialog';
import { Dialog } from '@base-ui/react/dialog';
import { useState, type ReactNode } from 'react';
import { errorMessage } from '../state/actions';

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

interface DialogFormProps {
  /** Text of the button that submits. */
  act: string;
  ready?: boolean;
  /** Closes the dialog if it succeeds. */
  submit: () => Promise<unknown>;
  onClose: () => void;
  children: ReactNode;
}

/** Form in a dialog: its fields, the reason why submitting failed, and its buttons. */
export function DialogForm({ act, ready = true, submit, onClose, children }: DialogFormProps) {
  const [fault, setFault] = useState('');
  const [busy, setBusy] = useState(false);
  const send = async () => {
    setBusy(true);
    setFault('');
    try {
      await submit();
    } catch (error) {
      setFault(errorMessage(error));
      setBusy(false);
    }
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) void send();
      }}
    >
      {children}
      {fault && (
        <p className="fault" role="alert">
          {fault}
        </p>
      )}
      <div className="end">
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="button primary" disabled={busy || !ready}>
          {act}
        </button>
      </div>
    </form>
  );
}

interface ConfirmDialogProps extends ModalDialogProps {
  act: string;
  ready?: boolean;
  onYes: () => void;
}

export function ConfirmDialog({ open, onClose, title, children, act, ready = true, onYes }: ConfirmDialogProps) {
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
          <AlertDialog.Description render={<div className="dialog-body" />}>{children}</AlertDialog.Description>
          <div className="end">
            <AlertDialog.Close className="button">Cancel</AlertDialog.Close>
            <button type="button" className="button bad" disabled={!ready} onClick={yes}>
              {act}
            </button>
          </div>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
