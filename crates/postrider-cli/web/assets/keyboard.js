// The keyboard: `g` and a letter goes to a view, `/` to the search, `j` and `k` through the rows of a listing, `?` tells
// all this. Called by the shell. Keys are left alone while somebody types or a dialog is open.

import { useEffect } from './vendor/htm-preact.js';
import { go } from './router.js';

/** Name in the address, label, and the letter after `g`. */
export const NAVIGATION = [
  ['overview', 'Overview', 'o'],
  ['sinks', 'Sinks', 's'],
  ['lanes', 'Lanes', 'l'],
  ['dead-letters', 'Dead letters', 'd'],
  ['messages', 'Messages', 'm'],
  ['audit', 'Audit', 'u'],
  ['api', 'API', 'a'],
];

export const SHORTCUTS = [
  ...NAVIGATION.map(([, label, key]) => [`g ${key}`, label]),
  ['/', 'Find a message, a topic or a lane'],
  ['j', 'Next row'],
  ['k', 'Row before'],
  ['← →', 'Read a chart, when it has the focus'],
  ['?', 'This list'],
  ['Esc', 'Close a dialog'],
];

/** A letter counts as the second one for this long. */
const SECOND_KEY_MS = 1_200;

export function useKeyboard({ onHelp }) {
  useEffect(() => {
    let first = 0;
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || busy(event.target)) return;
      const target = Date.now() - first < SECOND_KEY_MS && NAVIGATION.find(([, , key]) => key === event.key);
      first = event.key === 'g' ? Date.now() : 0;
      if (target) return go(target[0] === 'overview' ? [] : target[0]);
      if (event.key === '?') return onHelp();
      if (event.key === 'j') return step(1);
      if (event.key === 'k') return step(-1);
      if (event.key === '/') {
        event.preventDefault();
        focusFind();
      }
      return undefined;
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
}

function busy(element) {
  return (
    document.querySelector('dialog[open]') ||
    element.isContentEditable ||
    /^(input|textarea|select)$/i.test(element.tagName)
  );
}

function focusFind() {
  const find = document.getElementById('find');
  // On a phone it is in the menu, which may be closed.
  if (!find.offsetParent) document.querySelector('.menu').click();
  requestAnimationFrame(() => find.focus());
}

/** Through the first link or box of each row. */
function step(by) {
  const rows = [...document.querySelectorAll('main tbody tr')]
    .map((row) => row.querySelector('a, input, button'))
    .filter(Boolean);
  if (!rows.length) return;
  const here = rows.findIndex((element) => element.closest('tr').contains(document.activeElement));
  rows[Math.min(rows.length - 1, Math.max(0, here + by))].focus();
}
