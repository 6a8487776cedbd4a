// A page whose own name suddenly leads to this machine (DNS rebinding) reads and sends nothing: not to the admin API, and
// not to `postrider receive`, whose address comes as RECEIVE. Chromium resolves every name of `.example` to this machine.

import { same, story } from './browser.mjs';

const { PAGE, RECEIVE } = process.env;
const EVENT = {
  event_id: '0190163d-8694-739b-aea5-966c26f8ad91',
  event_type: 'meter.read',
  occurred_at: '2026-01-31T08:00:00Z',
  payload: { kwh: 7 },
};

/** The same server under a name of the page's own. */
function rebound(address) {
  const url = new URL(address);
  url.hostname = 'rebound.example';
  return url.origin;
}

await story(async ({ page, wrongs }) => {
  for (const [server, path, expected] of [
    [PAGE, '/api/v1/sync/state', 'MISDIRECTED'],
    [RECEIVE, '/healthz', 'misdirected'],
  ]) {
    const answer = await page.goto(`${rebound(server)}${path}`);
    same(answer.status(), 421, 'it is not read under another name');
    same((await answer.json()).error.code, expected, 'why');
  }
  const sent = await page.evaluate(async (event) => {
    const body = JSON.stringify({ events: [event] });
    const headers = { 'Content-Type': 'application/json' };
    return (await fetch('/api/v1/edge/batch', { method: 'POST', headers, body })).status;
  }, EVENT);
  same(sent, 421, 'an event of a rebound page is not taken');
  // Chromium logs every answer that is no.
  wrongs.length = 0;
});
