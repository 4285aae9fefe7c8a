import { expect, test } from './abide';

test('a machine that is alone shows no list of machines', async ({ inside: page }) => {
  const answered = page.waitForResponse(/\/v1\/machines$/);
  await page.reload();
  await (await answered).finished();
  await expect(page.getByRole('region', { name: 'Timers' })).toBeVisible();
  await expect(page.getByRole('region', { name: 'Machines' })).toHaveCount(0);
});

test('machines of a fleet are listed with state, last heartbeat and running sessions', async ({ abide, inside: page }) => {
  await abide.session('cat');
  const machine = (name: string, state: string, seconds: number) => ({
    name,
    state,
    labels: [],
    version: '0.1.0',
    vouched_for: true,
    declared_lost: false,
    as_of: Date.now() - seconds * 1_000,
  });
  const machines = [machine('build', 'unreachable', 600), machine('desk', 'here', 2), machine('lab', 'alive', 4)];
  await page.route('**/v1/machines', (route) =>
    route.fulfill({ json: { machine: 'desk', joined: true, linked: true, machines } }),
  );
  await page.reload();
  const list = page.getByRole('region', { name: 'Machines' });
  await expect(list.getByRole('listitem')).toHaveCount(3);
  await expect(list.getByRole('listitem').nth(0)).toHaveText(/Unreachable.*build.*no sessions.*seen 10m/);
  await expect(list.getByRole('listitem').nth(1)).toHaveText(/This machine.*desk.*1 session/);
  await expect(list.getByRole('listitem').nth(2)).toHaveText(/Alive.*lab/);
});
