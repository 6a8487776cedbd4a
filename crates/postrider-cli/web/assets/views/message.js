// The whole story of one message: why it is where it is and what to do, every attempt drawn in time, what it carries, and
// the actions that apply to it.

import { html } from '../vendor/htm-preact.js';
import { get, getExact } from '../api.js';
import { count, relative } from '../format.js';
import { REFRESH_MS, useData, useSession, useTitle } from '../hooks.js';
import { cancel, discard, redrive, replay, retryNow } from '../actions.js';
import { Copy, Message, Action, Problem, ReadOnlyNote, Section, State, Table, Time, Waiting, Words } from '../parts.js';
import { Payload } from '../payload.js';
import { link } from '../router.js';
import { Timeline } from '../timeline.js';

export function MessageView({ route }) {
  const id = route.path[1];
  useTitle(`Message ${id.slice(-12)}`);
  const path = `/api/v1/messages/${encodeURIComponent(id)}`;
  const { data, error, loading, reload } = useData(
    async (signal) => {
      const [message, explanation] = await Promise.all([getExact(path, signal), get(`${path}/explain`, {}, signal)]);
      return { message, explanation };
    },
    id,
    REFRESH_MS,
  );
  return html`<div class="head"><p class="crumbs"><a href=${link('messages')}>Messages</a></p>
      <h1 class="message-title"><span class="mono">${id}</span><${Copy} text=${id} label="the id" /></h1></div>
    <${Problem} error=${error} retry=${reload} />
    ${loading && html`<${Waiting} rows=${8} />`}
    ${data && html`<${Story} message=${data.message} explanation=${data.explanation} />`}`;
}

function Story({ message, explanation }) {
  const { attempts, deliveries, headers } = message;
  return html`
    <${ReadOnlyNote} />
    <${Explain} message=${message} explanation=${explanation} />
    <div class="columns">
      <div>
        <${Section} id="timeline" title="Timeline" note=${attempts.length ? `enqueued ${relative(message.enqueued_at)}` : ''}>
          ${attempts.length ? html`<${Timeline} message=${message} />` : html`<p class="nothing">No attempt has ended yet.</p>`}
        <//>
        <${Section} id="payload" title="Payload"><${Payload} payload=${message.payload} body=${message.body} contentType=${message.content_type} /><//>
      </div>
      <div>
        <${Section} id="fields" title="Fields"><${Fields} message=${message} /><//>
        ${deliveries.length > 0 && html`<${Section} id="deliveries" title="Not yet delivered"><${Deliveries} deliveries=${deliveries} /><//>`}
        ${
          headers &&
          Object.keys(headers).length > 0 &&
          html`<${Section} id="headers" title="Headers">
          <dl class="fields">${Object.entries(headers).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd class="mono">${typeof value === 'string' ? value : JSON.stringify(value)}</dd></div>`)}</dl>
        <//>`
        }
      </div>
    </div>`;
}

function Explain({ message, explanation }) {
  const { ask } = useSession();
  const stands = (sink, state) =>
    message.deliveries.find((delivery) => delivery.sink === sink && delivery.state === state);
  const waits = (sink) => Date.parse(stands(sink, 'pending')?.due_at) > Date.now();
  const filter = (sink) => ({ message_ids: [message.message_id], sink });
  return html`<section class="explain" aria-label="Why it is where it is">
    ${explanation.deliveries.map(
      (reason) => html`<div key=${reason.sink} class="reason">
      <p class="reason-head"><strong>${reason.sink}</strong> <${State} of=${reason.code} /></p>
      <div class="reason-words"><p><${Words} text=${reason.why} /></p>${reason.advice && html`<p class="advice"><${Words} text=${reason.advice} /></p>`}
        ${reason.behind && html`<p>Waits behind <${Message} id=${reason.behind} /></p>`}</div>
      <p class="actions">
        ${
          stands(reason.sink, 'dead') &&
          html`<${Action} onAction=${() => ask(redrive(filter(reason.sink), `it for ${reason.sink}`))}>Redrive<//>
          <${Action} danger onAction=${() => ask(discard(filter(reason.sink), `it for ${reason.sink}`))}>Discard<//>`
        }
        ${
          stands(reason.sink, 'pending') &&
          html`${waits(reason.sink) && html`<${Action} onAction=${() => ask(retryNow(filter(reason.sink), `it for ${reason.sink}`))}>Retry now<//>`}
          <${Action} danger onAction=${() => ask(cancel(filter(reason.sink), `it for ${reason.sink}`))}>Cancel delivery<//>`
        }
        ${reason.code === 'DELIVERED' && html`<${Action} onAction=${() => ask(replay(message, reason.sink))}>Replay<//>`}
      </p>
    </div>`,
    )}
    ${explanation.deliveries.length === 0 && html`<p class="muted">No sink has anything to do with it.</p>`}
  </section>`;
}

function Fields({ message }) {
  const rows = [
    ['Topic', html`<a href=${link('messages', { topic: message.topic })}>${message.topic}</a>`],
    ['Namespace', message.namespace],
    ['Lane', message.lane && html`<a href=${link('lanes', { lane: message.lane })}>${message.lane}</a>`],
    ['Number in lane', message.sequence_id !== null && count(message.sequence_id)],
    [
      'Tenant',
      message.tenant_id &&
        html`<a class="mono" href=${link('messages', { tenant_id: message.tenant_id })}>${message.tenant_id}</a>`,
    ],
    ['Dedupe key', message.dedupe_key && html`<span class="mono">${message.dedupe_key}</span>`],
    ['Priority', message.priority],
    ['Occurred', html`<${Time} at=${message.occurred_at} />`],
    ['Enqueued', html`<${Time} at=${message.enqueued_at} />`],
  ];
  return html`<dl class="fields">${rows.filter(([, value]) => value || value === 0).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** How many attempts are left; null while nobody has said how many there are. */
export const attemptsLeft = ({ attempt_count: made, max_attempts: most }) =>
  most === null || most === undefined ? null : Math.max(0, most - made);

/** `9 of 10`, and after a redrive `1 of 10, 13 in all`. */
export function attempts({ attempt_count: made, attempt_no: all, max_attempts: most }) {
  const some = most === null || most === undefined ? `${made}` : `${made} of ${most}`;
  return all === made ? some : `${some}, ${all} in all`;
}

// What state each is in stands above, with the reason.
function Deliveries({ deliveries }) {
  const columns = [
    { label: 'Sink', cell: (delivery) => html`<strong>${delivery.sink}</strong>` },
    { label: 'Attempts', cell: attempts },
    { label: 'Left', number: true, cell: (delivery) => attemptsLeft(delivery) ?? '–' },
    {
      label: 'Next',
      cell: (delivery) =>
        delivery.claimed_by
          ? html`<span title=${delivery.claimed_by}>lease ends <${Time} at=${delivery.lease_expires_at} /></span>`
          : html`<${Time} at=${delivery.due_at} />`,
    },
  ];
  return html`<${Table} label="Deliveries" columns=${columns} rows=${deliveries} rowKey=${(delivery) => delivery.sink} />`;
}
