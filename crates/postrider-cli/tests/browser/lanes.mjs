// A lane waits for a person: its head is dead. An operator asks why a message behind it does not go on, is led to the
// head, and skips it. The id of the message behind comes as MESSAGE, the head's as HEAD.

import { receiver, story } from './browser.mjs';

const { MESSAGE: behind, HEAD: head } = process.env;

await story(async ({ page, open }) => {
  await open(`messages/${behind}`);
  const why = page.getByRole('region', { name: 'Why it is where it is' });
  await why.getByText('lane parked').waitFor();
  await why.locator(`a[title="${head}"]`).click();
  await page.getByRole('heading', { level: 1, name: head }).waitFor();
  await why.getByText('dead', { exact: true }).waitFor();

  await fetch(`${receiver}/accept`, { method: 'POST' });
  await page.keyboard.press('g');
  await page.keyboard.press('l');
  const lanes = page.getByRole('table', { name: 'Lanes' });
  await lanes.getByText('parked').waitFor();
  await lanes.getByRole('button', { name: 'Skip head' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('1 delivery behind it becomes due').waitFor();
  await dialog.getByRole('button', { name: 'Skip the head' }).click();
  await page.getByText('No lane has anything to deliver.').waitFor();
  await open(`messages/${behind}`);
  await why.getByText('delivered', { exact: true }).waitFor();
});
