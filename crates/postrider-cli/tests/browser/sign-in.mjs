// Where there is a token nobody looks without one: the page asks for it, once, and works when it has it. Whoever closes
// the question can still sign in.

import { same, story } from './browser.mjs';

await story(
  async ({ page, open, wrongs }) => {
    await open('sinks');
    const dialog = page.getByRole('dialog');
    await dialog.getByText('this needs a token').waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    same(await page.getByText('running').count(), 0, 'nothing is shown without a token');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await dialog.getByLabel('Token').fill(process.env.TOKEN);
    await page.keyboard.press('Enter');
    await page.getByText('May operate').waitFor();
    await page.getByText('running').first().waitFor();
    // Chromium logs every 401.
    wrongs.length = 0;
  },
  { token: '' },
);
