// A page of another site tries to show ours in a frame. Chromium refuses because of `frame-ancestors`, and says so; without
// the header it would not: the same frame is shown once the headers are taken away, which proves that the story notices.

import { PATIENCE_MS, receiver, same, story } from './browser.mjs';

const { PAGE } = process.env;

/** What the frame of a neutral page shows, with these headers taken out of our answers; and what the browser logged. */
async function framed(context, without) {
  const page = await context.newPage();
  const logged = [];
  page.on('console', (message) => logged.push(message.text()));
  await page.route(`${PAGE}/**`, async (route) => {
    const answer = await route.fetch();
    const headers = Object.fromEntries(Object.entries(answer.headers()).filter(([name]) => !without.includes(name)));
    await route.fulfill({ response: answer, headers });
  });
  await page.goto(`${receiver}/neutral`);
  const loaded = page.waitForEvent('framenavigated', { predicate: (frame) => frame !== page.mainFrame(), timeout: PATIENCE_MS });
  await page.evaluate((address) => {
    const frame = document.createElement('iframe');
    frame.src = address;
    document.body.append(frame);
  }, `${PAGE}/`);
  const frame = await loaded;
  const shown = await frame.evaluate(() => document.title).catch(() => '');
  // The frame may still be asking for something when the page goes.
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.close();
  return { shown: shown.includes('Postrider'), logged: logged.join('\n') };
}

await story(async ({ page }) => {
  const context = page.context();
  const refused = await framed(context, []);
  same(refused.shown, false, 'our page is not shown in a frame');
  if (!refused.logged.includes("frame-ancestors 'none'")) throw new Error(`another reason: ${refused.logged}`);
  const alone = await framed(context, ['x-frame-options', 'cross-origin-resource-policy', 'cross-origin-opener-policy']);
  same(alone.shown, false, 'the content security policy is enough');
  const open = await framed(context, ['content-security-policy', 'x-frame-options']);
  same(open.shown, true, 'without the headers it is shown');
});
