// Messages, newest first, found by what is known about them. Pages go on by the last id, so that they neither slow down
// nor shift while messages come in. What is pending can be retried now or cancelled by the same filter.

import { html, useEffect, useState } from '../vendor/htm-preact.js';
import { cancel, deliveryFilter, retryNow } from '../actions.js';
import { get } from '../api.js';
import { Filters } from '../filters.js';
import { count } from '../format.js';
import { useData, useSession, useTitle } from '../hooks.js';
import { Action, Message, Nothing, Problem, State, Table, Time, Waiting } from '../parts.js';
import { link } from '../router.js';

const LIMIT = 50;
const STATES = ['pending', 'leased', 'dead', 'delivered', 'discarded'];

export function Messages({ route: { query } }) {
  useTitle('Messages');
  const { overview, ask } = useSession();
  const [pages, setPages] = useState([]);
  const filter = JSON.stringify(query);
  useEffect(() => setPages([]), [filter]);
  const after = pages.at(-1);
  const messages = useData(
    (signal) => get('/api/v1/messages', { ...query, after, limit: LIMIT }, signal),
    `${filter} ${after ?? ''}`,
  );
  const fields = [
    { name: 'state', label: 'State', options: STATES },
    { name: 'topic', label: 'Topic', placeholder: 'order.*' },
    { name: 'sink', label: 'Sink', suggestions: overview?.sinks.map((sink) => sink.sink) },
    { name: 'lane', label: 'Lane' },
    { name: 'id', label: 'Id, or its end', more: true, placeholder: '8930f0599708' },
    { name: 'dedupe_key', label: 'Dedupe key', more: true },
    { name: 'namespace', label: 'Namespace', more: true },
    { name: 'tenant_id', label: 'Tenant', more: true },
    { name: 'from', label: 'Enqueued from', time: true, more: true },
    { name: 'to', label: 'Enqueued before', time: true, more: true },
  ];
  const page = messages.data;
  return html`<div class="head"><h1>Messages</h1><p class="muted">Newest first; one line for each delivery that has not ended, one when nothing is left to deliver.</p></div>
    <${Filters} path="messages" fields=${fields} query=${query} />
    <${Problem} error=${messages.error} retry=${messages.reload} />
    ${messages.loading && html`<${Waiting} rows=${10} />`}
    ${page?.items.length > 0 && html`<${Pending} query=${query} ask=${ask} />`}
    ${page && (page.items.length ? html`<${List} items=${page.items} />` : html`<${Empty} page=${page} query=${query} />`)}
    ${
      page &&
      html`<div class="pager">
      ${pages.length > 0 && html`<button type="button" onClick=${() => setPages(pages.slice(0, -1))}>← Newer</button>`}
      <button type="button" onClick=${messages.reload}>Refresh</button>
      ${page.next && html`<button type="button" onClick=${() => setPages([...pages, page.next])}>Older →</button>`}
    </div>`
    }`;
}

/** Filters that the actions do not have: with one of them they would take more than is shown. */
const FOUND_OTHERWISE = ['from', 'to', 'id', 'dedupe_key'];

function Pending({ query, ask }) {
  if (query.state !== 'pending' || FOUND_OTHERWISE.some((name) => query[name]) || query.topic?.includes('*')) return null;
  const filter = deliveryFilter(query);
  return html`<p class="actions">
    <${Action} small onAction=${() => ask(retryNow(filter, 'what this filter finds'))}>Retry all now<//>
    <${Action} small danger onAction=${() => ask(cancel(filter, 'what this filter finds'))}>Cancel all<//>
  </p>`;
}

/** What was looked for under one name may have been meant under another. */
function otherwise(query) {
  const [[name, text] = []] = Object.entries(query);
  if (Object.keys(query).length !== 1 || !['id', 'lane', 'topic', 'dedupe_key'].includes(name)) return [];
  const names = { lane: 'a lane', topic: 'a topic', dedupe_key: 'a dedupe key' };
  return Object.entries(names).filter(([other]) => other !== name).map(([other, words]) => [words, link('messages', { [other]: text })]);
}

function Empty({ page, query }) {
  const others = otherwise(query);
  const elsewhere =
    others.length > 0 &&
    html` Search for it as ${others.map(([words, href], index) => html`${index > 0 && ', '}<a key=${href} href=${href}>${words}</a>`)}.`;
  if (page.next) {
    const what = query.id ? 'all that is undelivered or dead, and the newest 100,000 messages' : 'the newest 10,000 messages';
    return html`<${Nothing}>Nothing found. Searched: ${what}, back to <${Time} at=${page.searched_from} />. "Older" goes on from there.${elsewhere}<//>`;
  }
  return html`<${Nothing}>${Object.keys(query).length ? 'No message is like this.' : 'There are no messages yet.'}${elsewhere}<//>`;
}

function List({ items }) {
  const columns = [
    { label: 'Message', cell: (item) => html`<${Message} id=${item.message_id} />` },
    { label: 'State', cell: (item) => html`<${State} of=${item.state} />` },
    { label: 'Topic', name: (item) => item.topic, cell: (item) => item.topic },
    {
      label: 'Namespace',
      name: (item) => item.namespace,
      cell: (item) => html`<span class="muted">${item.namespace}</span>`,
    },
    {
      label: 'Lane',
      name: (item) => item.lane,
      cell: (item) =>
        item.lane
          ? html`<a href=${link('messages', { lane: item.lane })}>${item.lane}</a> <span class="muted">#${item.sequence_id}</span>`
          : html`<span class="muted">–</span>`,
    },
    {
      label: 'Sink',
      name: (item) => item.sink,
      cell: (item) => item.sink || html`<span class="muted">${item.state === 'delivered' ? 'all sinks' : '–'}</span>`,
    },
    { label: 'Attempts', number: true, cell: (item) => count(item.attempt_no) },
    { label: 'Due', cell: (item) => html`<${Time} at=${item.due_at} />` },
    { label: 'Enqueued', cell: (item) => html`<${Time} at=${item.enqueued_at} />` },
  ];
  return html`<${Table} label="Messages" columns=${columns} rows=${items} rowKey=${(item) => `${item.message_id} ${item.sink ?? ''}`} />`;
}
