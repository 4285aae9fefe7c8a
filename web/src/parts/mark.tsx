// The sign of the house.

import address from '../style/icon.svg';

export function Mark() {
  return <img src={address} width="28" height="28" alt="" />;
}
