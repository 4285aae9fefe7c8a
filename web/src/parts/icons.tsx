// Icons. There is always text beside them, so screen readers skip them.

import type { ReactNode } from 'react';

function icon(drawing: ReactNode) {
  return function Icon() {
    return (
      <svg
        width="19"
        height="19"
        viewBox="0 0 24 24"
        fill="none"
        stroke="currentColor"
        strokeWidth="1.8"
        strokeLinecap="round"
        strokeLinejoin="round"
        aria-hidden="true"
      >
        {drawing}
      </svg>
    );
  };
}

export const NowIcon = icon(
  <>
    <path d="M4 17a8 8 0 0 1 16 0" />
    <circle cx="12" cy="17" r="1.6" />
    <path d="M2.5 21h19" />
  </>,
);
export const TimerIcon = icon(
  <>
    <circle cx="12" cy="13.5" r="7.5" />
    <path d="M12 9.5v4l2.6 1.6M9.5 2.8h5" />
  </>,
);
export const SessionIcon = icon(
  <>
    <rect x="3" y="4.5" width="18" height="15" rx="3" />
    <path d="m7.5 9.5 3 2.7-3 2.7M13 15h3.5" />
  </>,
);
export const MessageIcon = icon(
  <>
    <path d="M4 6.5A2.5 2.5 0 0 1 6.5 4h11A2.5 2.5 0 0 1 20 6.5v8a2.5 2.5 0 0 1-2.5 2.5H11l-4.5 3.5V17A2.5 2.5 0 0 1 4 14.500z" />
  </>,
);
export const RuleIcon = icon(
  <>
    <path d="M12 3 4.500 6v5.500c0 4.600 3.100 8 7.500 9.500 4.400-1.500 7.500-4.900 7.500-9.500V6z" />
    <path d="m8.800 12 2.300 2.300 4.100-4.300" />
  </>,
);
export const SunIcon = icon(
  <>
    <circle cx="12" cy="12" r="4" />
    <path d="M12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M5.300 18.700l1.400-1.400M17.300 6.700l1.400-1.400" />
  </>,
);
export const MoonIcon = icon(<path d="M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500z" />);
export const AutoIcon = icon(
  <>
    <circle cx="12" cy="12" r="8.500" />
    <path d="M12 3.500v17a8.500 8.500 0 0 0 0-17z" fill="currentColor" />
  </>,
);
export const BellIcon = icon(
  <>
    <path d="M6 16v-5a6 6 0 0 1 12 0v5l1.500 2h-15z" />
    <path d="M10 20.500a2.200 2.200 0 0 0 4 0" />
  </>,
);
export const HelpIcon = icon(
  <>
    <circle cx="12" cy="12" r="9" />
    <path d="M9.500 9.300a2.600 2.600 0 1 1 3.700 2.400c-.8.4-1.200.9-1.200 1.800M12 17h.01" />
  </>,
);
export const LeaveIcon = icon(<path d="M14 4H6.500A2.500 2.500 0 0 0 4 6.500v11A2.500 2.500 0 0 0 6.500 20H14M10 12h10.500M17 8.500l3.500 3.500-3.500 3.500" />);
export const PlusIcon = icon(<path d="M12 5v14M5 12h14" />);
export const CopyIcon = icon(
  <>
    <rect x="9" y="9" width="11" height="11" rx="2.500" />
    <path d="M15 6.500V6a2 2 0 0 0-2-2H6a2 2 0 0 0-2 2v7a2 2 0 0 0 2 2h.500" />
  </>,
);
export const DownIcon = icon(<path d="m6.500 9.500 5.500 5.500 5.500-5.500" />);
export const UpIcon = icon(<path d="m6 14.5 6-6 6 6" />);
export const MoreIcon = icon(<path d="M5 12h.01M12 12h.01M19 12h.01" strokeWidth="3" />);
export const EditIcon = icon(<path d="M4 20l1-4L16.500 4.500l3 3L8 19zM14 7l3 3" />);
export const CloseIcon = icon(<path d="M6 6l12 12M18 6 6 18" />);
export const FileIcon = icon(<path d="M12 4v11M7.500 10.800 12 15.300l4.500-4.500M5 20h14" />);
