// The small pieces that every view is made of: times, states, tables that become cards on a phone, filters, errors, and
// buttons that act. Called by the views. Text from messages goes into text nodes only, never into markup.

import { html, useState } from './vendor/htm-preact.js';
import { absolute, relative, shortId } from './format.js';
import { useSession, useTick } from './hooks.js';
import { link } from './router.js';

/** `3 s ago`, with the moment itself in the title. */
export function Time({ at }) {
  useTick();
  if (!at) return html`<span class="muted">–</span>`;
  return html`<time datetime=${at} title=${absolute(at)}>${relative(at)}</time>`;
}

/** Which states are good, bad, or neither. The word is always there: colour alone says nothing. */
const TONES = {
  delivered: 'ok',
  DISPATCHED: 'ok',
  DELIVERED: 'ok',
  closed: 'ok',
  alive: 'ok',
  running: 'ok',
  leased: 'info',
  LEASED: 'info',
  due: 'info',
  DUE: 'info',
  pending: 'info',
  NOT_DUE: 'info',
  BEHIND_LANE_HEAD: 'info',
  waiting: 'warn',
  RETRYABLE: 'warn',
  RETRY_LATER: 'warn',
  half_open: 'warn',
  paused: 'warn',
  SINK_PAUSED: 'warn',
  ZOMBIE_REQUEUE: 'warn',
  CANCELLED: 'warn',
  LEASE_EXPIRED: 'warn',
  ATTEMPTS_EXHAUSTED: 'bad',
  RELAY_SILENT: 'bad',
  silent: 'bad',
  dead: 'bad',
  DEAD: 'bad',
  FAILED: 'bad',
  parked: 'bad',
  LANE_PARKED: 'bad',
  open: 'bad',
  BREAKER_OPEN: 'bad',
  breaker_open: 'bad',
  unserved: 'bad',
  NO_RELAY: 'bad',
};

export function State({ of, title, plain }) {
  const words = String(of).toLowerCase().replaceAll('_', ' ');
  return html`<span class=${`state ${(!plain && TONES[of]) || 'plain'}`} title=${title}>${words}</span>`;
}

/** How a sink is doing, as the server says. One that no relay serves is bad only while something waits for it. */
export function SinkState({ sink }) {
  const titles = {
    unserved: 'No relay that is alive delivers to this sink',
    breaker_open: 'The destination kept failing: every relay waits before it tries again',
    half_open: 'The relays try one message, to see whether the destination is back',
    paused: 'Its messages wait until somebody resumes it',
  };
  const idle = sink.state === 'unserved' && sink.pending + sink.leased === 0;
  return html`<${State} of=${sink.state} title=${titles[sink.state]} plain=${idle} />`;
}

export function Message({ id, full }) {
  return html`<a class="mono" href=${link(['messages', id])} title=${id}>${full ? id : shortId(id)}</a>`;
}

/** A failure's code, and its message cut to two lines with the whole in the title. */
export function Failure({ code, message }) {
  if (!code && !message) return html`<span class="muted">–</span>`;
  return html`<span class="failure" title=${message}>
    ${code && html`<span class="code">${code}</span>`} <span class="said">${message}</span>
  </span>`;
}

export function Problem({ error, retry }) {
  if (!error) return null;
  return html`<div class="problem" role="alert">
    <p><strong>${error.message}</strong> <span class="code">${error.code}</span></p>
    ${error.hint && html`<p>${error.hint}</p>`}
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** A sentence of the server, with the commands in it set as such. */
export const Words = ({ text }) =>
  html`${text.split('`').map((part, index) => (index % 2 ? html`<code key=${index}>${part}</code>` : part))}`;

export const Nothing = ({ children }) => html`<p class="nothing">${children}</p>`;

/** Bars in the place of what is being fetched, so that nothing jumps. */
export function Waiting({ rows = 5 }) {
  return html`<div class="waiting-bars" role="status" aria-label="Loading">
    ${Array.from({ length: rows }, (_, index) => html`<span key=${index}></span>`)}
  </div>`;
}

/**
 * Columns are `{label, cell(row), number?, name?, wide?, hide?}`; a name is cut when it is long, and
 * told whole in the title. On a phone each row is a card, and each cell says its label;
 * roles are given, for a table that is drawn as blocks is no table to a screen reader.
 */
export function Table({ label, columns, rows, rowKey, tone }) {
  const shown = columns.filter(Boolean);
  return html`<div class="scroll"><table class="table" role="table" aria-label=${label}>
    <thead role="rowgroup"><tr role="row">
      ${shown.map(
        (column) => html`<th key=${column.label} role="columnheader" scope="col"
        class=${column.number ? 'number' : ''}>${column.hide ? html`<span class="unseen">${column.label}</span>` : column.label}</th>`,
      )}
    </tr></thead>
    <tbody role="rowgroup">
      ${rows.map(
        (row) => html`<tr key=${rowKey(row)} role="row" data-key=${rowKey(row)} class=${tone?.(row) || ''}>
        ${shown.map(
          (column) => html`<td key=${column.label} role="cell" data-label=${column.hide ? '' : column.label}
          class=${[column.number && 'number', column.name && 'name', column.wide && 'wide'].filter(Boolean).join(' ')} title=${column.name?.(row)}>${column.cell(row)}</td>`,
        )}
      </tr>`,
      )}
    </tbody>
  </table></div>`;
}

/**
 * A button that acts. Without the right to do so it stays where it is and says why; whoever has not signed in
 * is asked to, and the click counts afterwards.
 */
export function Action({ onAction, children, danger, disabled, small }) {
  const { may, signIn } = useSession();
  const asks = !may.operate && may.canSignIn && may.role === 'none';
  const looks = [danger && 'danger', small && 'small', !may.operate && 'locked'].filter(Boolean).join(' ');
  return html`<button type="button" class=${looks} disabled=${disabled || !(may.operate || asks)}
    title=${may.operate ? undefined : may.reason} onClick=${() => (asks ? signIn(may.reason, onAction) : onAction())}>${children}</button>`;
}

/** Above what cannot be done: why not, and how it could be. */
export function ReadOnlyNote() {
  const { may, signIn } = useSession();
  if (may.operate || !may.reason) return null;
  return html`<p class="note"><span>Read only. ${may.reason}</span>
    ${may.canSignIn && html` <button type="button" class="plain-link" onClick=${() => signIn()}>Sign in</button>`}</p>`;
}

/** A short text that can be copied; the button says when it was. */
export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 1_500);
    } catch {
      setDone(false);
    }
  };
  return html`<button type="button" class="small copy" onClick=${copy} aria-label=${`Copy ${label}`}>${done ? 'Copied' : 'Copy'}</button>`;
}

export function Section({ title, note, aside, children, id }) {
  return html`<section class="section" aria-labelledby=${id}>
    <div class="section-head"><h2 id=${id}>${title}</h2>${note && html`<span class="muted">${note}</span>`}<span class="grow"></span>${aside}</div>
    ${children}
  </section>`;
}
