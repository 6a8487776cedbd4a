// Messages that are scheduled for later: an operator makes one due at once and replays it alone, cancels another, and
// cancels the rest by a filter. The ids come as FIRST and SECOND; two more wait in lane `rest`.

import { same, story } from './browser.mjs';

const { FIRST: first, SECOND: second } = process.env;

await story(async ({ page, open }) => {
  const why = page.getByRole('region', { name: 'Why it is where it is' });
  const dialog = page.getByRole('dialog');

  await open(`messages/${first}`);
  await why.getByText('not due', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Retry now' }).click();
  await dialog.getByText('1 delivery waits for its time').waitFor();
  await dialog.getByRole('button', { name: 'Retry 1 delivery' }).click();
  await page.getByText('1 delivery made due.').waitFor();
  await why.getByText('delivered', { exact: true }).waitFor();

  // A replay means this message, and no neighbour of the same millisecond.
  await page.getByRole('button', { name: 'Replay' }).click();
  await dialog.getByText('1 message matches').waitFor();
  await dialog.getByRole('button', { name: 'Replay 1 message' }).click();
  await page.getByText('1 message will be delivered to default again.').waitFor();

  await open(`messages/${second}`);
  await page.getByRole('button', { name: 'Cancel delivery' }).click();
  const button = dialog.getByRole('button', { name: 'Cancel 1 delivery' });
  await dialog.getByText('1 pending delivery matches').waitFor();
  same(await button.isDisabled(), true, 'nothing is cancelled before the number is typed');
  await dialog.getByRole('textbox').fill('1');
  await button.click();
  await page.getByText('1 delivery cancelled.').waitFor();
  await why.getByText('cancelled', { exact: true }).waitFor();
  await page.getByRole('region', { name: 'Attempts to default' }).getByText('cancelled', { exact: true }).waitFor();

  await open('messages?state=pending&lane=rest');
  await page.getByRole('button', { name: 'Cancel all' }).click();
  await dialog.getByText('2 pending deliveries match').waitFor();
  await dialog.getByRole('textbox').fill('2');
  await dialog.getByRole('button', { name: 'Cancel 2 deliveries' }).click();
  await page.getByText('2 deliveries cancelled.').waitFor();
  await page.getByText('No message is like this.').waitFor();

  await page.keyboard.press('g');
  await page.keyboard.press('u');
  const audit = page.getByRole('table', { name: 'Audit' });
  await audit.getByText('cancel', { exact: true }).first().waitFor();
  await audit.getByText('retry now', { exact: true }).waitFor();
  await audit.getByRole('columnheader', { name: 'Login' }).waitFor();
});
