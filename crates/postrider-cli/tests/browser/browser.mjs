// What every story shares: a Chromium of its own, a page that is signed in, and a list of what went wrong in it. A story
// fails when the page logs an error, breaks its content security policy or throws, whatever else it did. Started by
// tests/it/browser.rs, which says in the environment where everything is.

import { createRequire } from 'node:module';

const { PAGE, TOKEN, RECEIVER, CHROMIUM, MODULES } = process.env;
const { chromium } = createRequire(`${MODULES}/package.json`)('playwright-core');

/** On a slow machine everything takes longer; a healthy page needs milliseconds. */
export const PATIENCE_MS = 60_000;
export const receiver = RECEIVER;

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-dev-shm-usage',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  // For what a page can do whose name leads to this machine.
  '--host-resolver-rules=MAP *.example 127.0.0.1',
];

/** Runs a story with `{page, open, wrongs}` and ends the process: 0 if it went well. */
export async function story(tell, options = {}) {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  const wrongs = [];
  try {
    const context = await browser.newContext({ locale: 'en-US', viewport: { width: 1280, height: 800 }, ...options });
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    page.on('console', (message) => message.type() === 'error' && wrongs.push(`console: ${message.text()}`));
    page.on('pageerror', (error) => wrongs.push(`thrown: ${error.message}`));
    page.on('dialog', (dialog) => {
      wrongs.push(`a script of a message spoke: ${dialog.message()}`);
      dialog.dismiss();
    });
    await page.addInitScript(
      (token) => token && sessionStorage.setItem('postrider.token', token),
      options.token ?? TOKEN,
    );
    const open = (place) => page.goto(`${PAGE}/#/${place}`);
    await tell({ page, open, wrongs });
    if (wrongs.length) throw new Error(`the page did something wrong:\n${wrongs.join('\n')}`);
  } finally {
    await browser.close();
  }
}

export function same(actual, expected, what) {
  const [got, wanted] = [actual, expected].map((value) => JSON.stringify(value));
  if (got !== wanted) throw new Error(`${what}: expected ${wanted}, got ${got}`);
}
