// Every sink: is it running, what waits for it, what its breaker says, and the switch that pauses it. Uses the overview
// that the shell fetches anyway.

import { html } from '../vendor/htm-preact.js';
import { count, oldest, rate, seconds } from '../format.js';
import { useSession, useTitle } from '../hooks.js';
import { pause, resume } from '../actions.js';
import { Nothing, Action, Problem, ReadOnlyNote, SinkState, Time, Waiting } from '../parts.js';
import { link } from '../router.js';
import { openFor } from '../verdict.js';

export function Sinks() {
  useTitle('Sinks');
  const { overview, error, ask } = useSession();
  const body = overview
    ? html`<${List} sinks=${overview.sinks} relays=${overview.relays} ask=${ask} />`
    : error
      ? html`<${Problem} error=${error} />`
      : html`<${Waiting} />`;
  return html`<div class="head"><h1>Sinks</h1><p class="muted">Where messages go. A paused sink keeps its messages until it is resumed.</p></div>
    <${ReadOnlyNote} />${body}`;
}

function List({ sinks, relays, ask }) {
  if (!sinks.length) return html`<${Nothing}>No message was enqueued yet, so there is no sink.<//>`;
  return html`<ul class="sink-cards">${sinks.map((sink) => html`<${Card} key=${sink.sink} sink=${sink} open=${openFor(sink.sink, relays)} ask=${ask} />`)}</ul>`;
}

function Card({ sink, open, ask }) {
  const numbers = [
    ['Waiting', html`<a href=${link('messages', { sink: sink.sink, state: 'pending' })}>${count(sink.pending)}</a>`],
    ['Due', count(sink.due)],
    ['Oldest', oldest(sink)],
    ['Oldest due', sink.due ? seconds(sink.oldest_due_age_seconds) : '–'],
    ['Held', count(sink.held ?? sink.leased)],
    ['Lease ended', count(sink.expired)],
    ['Parked lanes', linked(sink.parked_lanes, link('lanes', { sink: sink.sink, state: 'parked' }))],
    ['Dead', linked(sink.dead, link('dead-letters', { sink: sink.sink }))],
    ['Breaker', html`<${Breaker} sink=${sink} open=${open} />`],
    ['Rate limit', sink.rate ? `${rate(sink.rate)}/s` : 'none'],
    ['A dead head', { park: 'parks its lane', skip: 'is skipped' }[sink.on_dead] || '–'],
    ['Last success', html`<${Time} at=${sink.last_success_at} />`],
    ['Last failure', html`<${Time} at=${sink.last_error_at} />`],
  ];
  return html`<li class="sink-card" data-key=${sink.sink}>
    <div class="sink-head"><h2>${sink.sink}</h2><span class="muted">${sink.kind}</span><${SinkState} sink=${sink} />
      ${sink.reported_at && html`<span class="muted" title="Held, breaker and rate limit are as old as this">relays reported <${Time} at=${sink.reported_at} /></span>`}<span class="grow"></span>
      ${
        sink.paused
          ? html`<${Action} small onAction=${() => ask(resume(sink))}>Resume<//>`
          : html`<${Action} small onAction=${() => ask(pause(sink))}>Pause<//>`
      }</div>
    ${sink.last_error && html`<p class="sink-error">The last error: ${sink.last_error}</p>`}
    <dl class="numbers">${numbers.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  </li>`;
}

const linked = (amount, href) => (amount ? html`<a class="bad-text" href=${href}>${count(amount)}</a>` : '0');

function Breaker({ sink, open }) {
  if (!sink.breaker) return html`<span class="muted" title="No relay that is alive delivers to it">no relay</span>`;
  const again = sink.breaker === 'open' && open ? `for ${seconds(open)}` : '';
  const some = sink.breaker === 'open' && sink.open < sink.relays ? `in ${sink.open} of ${sink.relays} relays` : '';
  return html`<span class=${sink.breaker === 'open' ? 'bad-text' : ''} title=${sink.last_error}>${sink.breaker.replace('_', ' ')} ${some} ${again}</span>`;
}
