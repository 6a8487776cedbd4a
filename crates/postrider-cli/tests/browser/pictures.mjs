// Takes the pictures of the documentation, of an outbox that really works: see tests/it/pictures.rs. They go to DIRECTORY.
// The id of a message that has failed often comes as MESSAGE.

import { join } from 'node:path';
import { story } from './browser.mjs';

const { DIRECTORY: directory, MESSAGE: id } = process.env;
const DESK = { viewport: { width: 1280, height: 1060 } };
const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true };

const PICTURES = [
  ['page-overview-light', '', { ...DESK, colorScheme: 'light' }],
  ['page-overview-dark', '', { ...DESK, colorScheme: 'dark' }],
  ['page-sinks', 'sinks', { ...DESK, colorScheme: 'light' }],
  ['page-dead-letters', 'dead-letters', { ...DESK, colorScheme: 'light' }],
  ['page-message', `messages/${id}`, { ...DESK, colorScheme: 'light' }],
  ['page-phone-light', '', { ...PHONE, colorScheme: 'light' }],
  ['page-phone-dark', `messages/${id}`, { ...PHONE, colorScheme: 'dark' }],
];

for (const [name, place, options] of PICTURES) {
  await story(async ({ page, open }) => {
    await open(place);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.locator('.waiting-bars').waitFor({ state: 'detached' });
    // The overview's charts come with the second answer.
    if (!place) await page.locator('.charts svg').first().waitFor();
    await page.screenshot({ path: join(directory, `${name}.png`) });
  }, options);
}
