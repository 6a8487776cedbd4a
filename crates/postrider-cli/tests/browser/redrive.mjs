// A receiver refused two messages of a lane's head and another; an operator finds out why, corrects the cause, redrives
// and sees the delivery. The payload tries to run scripts. The id of the hostile message comes as MESSAGE.

import { receiver, same, story } from './browser.mjs';

const id = process.env.MESSAGE;

await story(async ({ page, open }) => {
  await open('');
  await page.getByRole('heading', { level: 1, name: 'default is stuck' }).waitFor();
  await page.getByRole('link', { name: 'See why' }).click();

  const groups = page.getByRole('table', { name: 'Groups of dead letters' });
  await groups.getByText('422').first().waitFor();
  await page.getByRole('table', { name: 'Dead letters', exact: true }).locator(`a[title="${id}"]`).click();

  // What the message carries is text, and only text.
  const payload = page.locator('pre[aria-label="Payload"]');
  await payload.waitFor();
  const text = await payload.textContent();
  for (const part of ['<img src=x onerror=', '</script>', '12345678901234567890']) {
    if (!text.includes(part)) throw new Error(`the payload does not show ${part}: ${text}`);
  }
  same(
    await page.evaluate(() => [window.pwned, document.querySelectorAll('pre *, img[src="x"]').length]),
    [null, 0],
    'nothing of a payload is run or made an element',
  );
  const attempts = page.getByRole('region', { name: 'Attempts to default' });
  await attempts.getByText('failed').first().waitFor();
  await attempts.getByText('the order has no customer').waitFor();

  // The cause is corrected; the letter is redriven, after a question that counts.
  await fetch(`${receiver}/accept`, { method: 'POST' });
  await page.getByRole('button', { name: 'Redrive' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('1 dead letter matches').waitFor();
  await dialog.getByRole('button', { name: 'Redrive 1 dead letter' }).click();
  await page.getByText('1 dead letter redriven.').waitFor();
  const why = page.getByRole('region', { name: 'Why it is where it is' });
  await why.getByText('delivered', { exact: true }).waitFor();
  await page.getByRole('region', { name: 'Attempts to default' }).getByText('dispatched').waitFor();

  // The other one is thrown away: the number must be typed.
  await page.keyboard.press('g');
  await page.keyboard.press('d');
  await page.getByRole('button', { name: 'Discard all 1' }).click();
  const discard = dialog.getByRole('button', { name: 'Discard 1 dead letter' });
  await dialog.getByText('1 dead letter matches').waitFor();
  same(await discard.isDisabled(), true, 'nothing is discarded before the number is typed');
  await dialog.getByRole('textbox').fill('1');
  await discard.click();
  await page.getByText('There are no dead letters.').waitFor();

  await page.keyboard.press('g');
  await page.keyboard.press('u');
  const audit = page.getByRole('table', { name: 'Audit' });
  await audit.getByText('discard').first().waitFor();
  same(await audit.getByRole('row').count(), 3, 'the audit has both orders');
});
