// A sink that no relay serves is seen at once, and a message is found by the end of its id, by its topic with a wildcard and
// by its dedupe key. The id of the message comes as MESSAGE; its topic is bill.due, its dedupe key bill-7/due.

import { same, story } from './browser.mjs';

const id = process.env.MESSAGE;

await story(async ({ page, open }) => {
  await open('');
  await page.getByText('No relay delivers to billing').waitFor();
  const row = page.getByRole('table', { name: 'Sinks now' }).locator('tr[data-key="billing"]');
  await row.getByText('unserved', { exact: true }).waitFor();
  same(await row.getByText('running').count(), 0, 'a sink without a relay does not run');
  await open('sinks');
  const card = page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: 'billing' }) });
  await card.getByText('unserved', { exact: true }).waitFor();

  const messages = page.getByRole('table', { name: 'Messages' });
  const find = async (text) => {
    await page.getByRole('searchbox', { name: 'Find a message' }).fill(text);
    await page.keyboard.press('Enter');
  };
  for (const text of [id.slice(-12), `…${id.slice(-12)}`]) {
    await open('sinks');
    await find(text);
    await messages.locator(`a[title="${id}"]`).waitFor();
    same(await messages.getByRole('row').count(), 2, 'the head and one message');
  }
  await find('bill.*');
  await messages.locator(`a[title="${id}"]`).waitFor();

  // What is not a lane may be a dedupe key: one click away.
  await find('bill-7/due');
  await page.getByText('No message is like this.').waitFor();
  await page.getByRole('link', { name: 'a dedupe key' }).click();
  await messages.locator(`a[title="${id}"]`).waitFor();
  await find(id);
  await page.getByRole('heading', { level: 1, name: id }).waitFor();
  await page.getByRole('region', { name: 'Why it is where it is' }).getByText('no relay', { exact: true }).waitFor();
});
