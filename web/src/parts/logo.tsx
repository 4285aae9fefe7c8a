// The logo.

import address from '../style/icon.svg';

export function Logo() {
  return <img src={address} width="28" height="28" alt="" />;
}
