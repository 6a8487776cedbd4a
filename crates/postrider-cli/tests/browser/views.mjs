// Every view on the narrowest phone and on a desk, light and dark: it draws, does not scroll sideways, names what can be
// used, and the API can be tried. The id of a message comes as MESSAGE.

import { same, story } from './browser.mjs';

const VIEWS = {
  '': /well|stuck|look|dead/,
  sinks: 'Sinks',
  lanes: 'Lanes',
  'dead-letters': 'Dead letters',
  messages: 'Messages',
  [`messages/${process.env.MESSAGE}`]: process.env.MESSAGE,
  audit: 'Audit',
  api: 'API',
};

for (const [colorScheme, width] of [
  ['light', 360],
  ['dark', 1280],
]) {
  await story(
    async ({ page, open }) => {
      for (const [place, heading] of Object.entries(VIEWS)) {
        await open(place);
        await page.getByRole('heading', { level: 1, name: heading }).waitFor();
        await page.locator('.waiting-bars').waitFor({ state: 'detached' });
        const found = await page.evaluate(() => ({
          wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
          problems: [...document.querySelectorAll('.problem')].map((one) => one.textContent),
          nameless: [...document.querySelectorAll('button, a[href], input, select, textarea')]
            .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.labels?.length || one.title))
            .map((one) => one.outerHTML),
        }));
        same(found, { wide: false, problems: [], nameless: [] }, `the view "${place}" at ${width} pixels`);
      }
      await tryTheApi(page);
    },
    { colorScheme, viewport: { width, height: 800 } },
  );
}

async function tryTheApi(page) {
  await page.goto(`${page.url().split('#')[0]}#/api?operation=${encodeURIComponent('get /api/v1/overview')}`);
  await page.getByRole('button', { name: 'Send GET' }).click();
  await page.getByRole('region', { name: 'Answer' }).getByText('200', { exact: true }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('heading', { level: 1 }).click();
  await page.keyboard.press('?');
  await page.getByRole('dialog').getByText('Find a message, a topic or a lane').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
}
