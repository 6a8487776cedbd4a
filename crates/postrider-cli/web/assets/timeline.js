// Every attempt of a message, drawn in time: a strip for each sink from enqueue to its last attempt, then each attempt
// with when it was claimed, how long it took and how it ended. Called by the message view.

import { html } from './vendor/htm-preact.js';
import { absolute, duration } from './format.js';
import { State } from './parts.js';

const ms = (time) => Date.parse(time);
const TONE = { DISPATCHED: 'ok', FAILED: 'bad' };
/** A mark is never narrower than this part of the strip: a short attempt is still seen. */
const NARROWEST = 0.6;

export function Timeline({ message }) {
  const { attempts, enqueued_at: enqueued } = message;
  const sinks = [...new Set(attempts.map((attempt) => attempt.sink))];
  const end = Math.max(ms(enqueued) + 1, ...attempts.map((attempt) => ms(attempt.completed_at)));
  const slowest = Math.max(1, ...attempts.map(took));
  return html`<div class="timeline">
    ${sinks.map((sink) => html`<${Story} key=${sink} sink=${sink} attempts=${attempts.filter((attempt) => attempt.sink === sink)} ...${{ enqueued, end, slowest }} />`)}
  </div>`;
}

const took = (attempt) => Math.max(0, ms(attempt.completed_at) - ms(attempt.claimed_at));

function Story({ sink, attempts, enqueued, end, slowest }) {
  const span = end - ms(enqueued);
  const place = (at) => ((ms(at) - ms(enqueued)) / span) * 100;
  return html`<section class="story" aria-label=${`Attempts to ${sink}`}>
    <div class="strip-row"><h3>${sink}</h3>
      <div class="strip" role="img" aria-label=${`${attempts.length} attempts in ${duration(span)}`}>
        ${attempts.map((attempt) => {
          const left = Math.min(100 - NARROWEST, Math.max(0, place(attempt.claimed_at)));
          const width = Math.max(NARROWEST, place(attempt.completed_at) - left);
          return html`<span key=${attempt.attempt_no} class=${`strip-mark ${TONE[attempt.state] || 'warn'}`} style=${{ left: `${left}%`, width: `${width}%` }}></span>`;
        })}
      </div>
      <span class="muted strip-span">${duration(ms(attempts.at(-1).completed_at) - ms(enqueued))}</span>
    </div>
    <ol class="attempts">${attempts.map(
      (
        attempt,
        index,
      ) => html`<${Attempt} key=${attempt.attempt_no} attempt=${attempt} before=${attempts[index - 1]} slowest=${slowest}
      since=${ms(attempt.claimed_at) - ms(enqueued)} waited=${ms(attempt.claimed_at) - ms(index ? attempts[index - 1].completed_at : enqueued)} />`,
    )}</ol>
  </section>`;
}

function Attempt({ attempt, before, slowest, since, waited }) {
  const { state, error_code: code, error_message: said, answer, reference } = attempt;
  const title = `claimed ${absolute(attempt.claimed_at)}\nended ${absolute(attempt.completed_at)}`;
  // Twelve attempts with one cause are read as one cause.
  const same = said && before?.error_message === said && before.error_code === code && before.answer === answer;
  return html`<li class=${`attempt ${TONE[state] || 'warn'}`}>
    <p class="attempt-wait muted">waited ${duration(waited)}</p>
    <div class="attempt-line">
      <span class="attempt-no">${attempt.attempt_no}</span>
      <${State} of=${state} />
      <span class="attempt-at" title=${title}>+${duration(since)}</span>
      <span class="attempt-took" title=${title}><span class="bar"><span class=${`bar-fill ${TONE[state] || 'warn'}`} style=${{ width: `${Math.max(1, (took(attempt) / slowest) * 100)}%` }}></span></span>
        <span class="bar-text">${attempt.latency_ms === null ? `${duration(took(attempt))} held` : duration(attempt.latency_ms)}</span></span>
      <span class="muted mono attempt-worker">${attempt.worker_id}</span>
    </div>
    ${
      (code || said || attempt.code || reference) &&
      html`<p class="attempt-said">
      ${attempt.code && html`<span class="code">${attempt.code}</span> `}
      ${!same && code && html`<span class="code">${code}</span> `}${said && (same ? html`<span class="muted">the same error</span>` : html`<span>${said}</span>`)}
      ${reference && html`<span class="muted"> ${reference}</span>`}</p>`
    }
    ${answer && !same && html`<pre class="attempt-answer" title="What the receiver answered">${answer}</pre>`}
  </li>`;
}
