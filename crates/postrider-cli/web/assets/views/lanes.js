// Lanes with something to deliver, those that wait for a person first: which message is at the head, why it is stuck, and
// the action that skips it. The order of the rows is the server's.

import { html } from '../vendor/htm-preact.js';
import { get } from '../api.js';
import { Filters } from '../filters.js';
import { count } from '../format.js';
import { REFRESH_MS, useData, useSession, useTitle } from '../hooks.js';
import { skip } from '../actions.js';
import { Failure, Message, Nothing, Action, Problem, ReadOnlyNote, State, Table, Time, Waiting } from '../parts.js';
import { link } from '../router.js';

const LIMIT = 100;
const STATES = ['parked', 'waiting', 'leased', 'due'];

export function Lanes({ route: { query } }) {
  useTitle('Lanes');
  const { overview, ask } = useSession();
  const lanes = useData(
    (signal) => get('/api/v1/lanes', { ...query, limit: LIMIT }, signal),
    JSON.stringify(query),
    REFRESH_MS,
  );
  const fields = [
    { name: 'sink', label: 'Sink', suggestions: overview?.sinks.map((sink) => sink.sink) },
    { name: 'lane', label: 'Lane' },
    { name: 'state', label: 'State', options: STATES },
  ];
  return html`<div class="head"><h1>Lanes</h1><p class="muted">Each delivers one message after the other. Parked ones wait for you: redrive the head, or skip it.</p></div>
    <${ReadOnlyNote} />
    <${Filters} path="lanes" fields=${fields} query=${query} />
    <${Problem} error=${lanes.error} retry=${lanes.reload} />
    ${lanes.loading && html`<${Waiting} />`}
    ${lanes.data && html`<${List} items=${lanes.data.items} ask=${ask} filtered=${Object.keys(query).length > 0} />`}`;
}

function List({ items, ask, filtered }) {
  if (!items.length)
    return html`<${Nothing}>${filtered ? 'No lane is like this.' : 'No lane has anything to deliver.'}<//>`;
  const columns = [
    {
      label: 'Lane',
      name: (lane) => lane.lane,
      cell: (lane) => html`<a href=${link('messages', { lane: lane.lane })}><strong>${lane.lane}</strong></a>`,
    },
    { label: 'Sink', name: (lane) => lane.sink, cell: (lane) => lane.sink },
    { label: 'State', cell: (lane) => html`<${State} of=${lane.state} />` },
    { label: 'Depth', number: true, cell: (lane) => count(lane.depth) },
    {
      label: 'Head',
      name: (lane) => lane.head_message_id,
      cell: (lane) =>
        html`<span class="muted">#${lane.head_sequence_id}</span> <${Message} id=${lane.head_message_id} />`,
    },
    { label: 'Attempts', number: true, cell: (lane) => count(lane.head_attempt_count) },
    { label: 'Due', cell: (lane) => html`<${Time} at=${lane.head_due_at} />` },
    {
      label: 'Why',
      wide: true,
      cell: (lane) => html`<${Failure} code=${lane.head_error_code} message=${lane.head_error_message} />`,
    },
    {
      label: 'Actions',
      hide: true,
      cell: (lane) => lane.state === 'parked' && html`<${Action} small onAction=${() => ask(skip(lane))}>Skip head<//>`,
    },
  ];
  return html`<${Table} label="Lanes" columns=${columns} rows=${items} rowKey=${(lane) => `${lane.sink} ${lane.lane}`} />
    ${items.length >= LIMIT && html`<p class="muted">The first ${LIMIT} are shown; filter to see others.</p>`}`;
}
