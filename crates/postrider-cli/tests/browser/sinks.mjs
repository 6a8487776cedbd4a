// An operator without a token may look; with one, pauses a sink and resumes it. The page says who may do what.

import { story } from './browser.mjs';

await story(
  async ({ page, open }) => {
    await open('sinks');
    const sink = page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: 'default' }) });
    await sink.getByText('running').waitFor();
    await page.getByText('Not signed in').waitFor();
    await sink.getByRole('button', { name: 'Pause' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Token').fill(process.env.TOKEN);
    await page.keyboard.press('Enter');
    await page.getByText('May operate').waitFor();

    // The click that led to the sign-in is not lost.
    await dialog.getByRole('heading', { name: 'Pause default?' }).waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await sink.getByRole('button', { name: 'Pause' }).click();
    await dialog.getByRole('button', { name: 'Pause' }).click();
    await sink.getByText('paused', { exact: true }).waitFor();
    await open('');
    await page.getByRole('heading', { level: 1, name: 'default is paused' }).waitFor();

    await open('sinks');
    await sink.getByRole('button', { name: 'Resume' }).click();
    await dialog.getByRole('button', { name: 'Resume' }).click();
    await sink.getByText('running').waitFor();
    await open('');
    await page.getByRole('heading', { level: 1, name: 'All is well' }).waitFor();
  },
  { token: '' },
);
