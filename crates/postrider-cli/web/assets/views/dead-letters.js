// Deliveries that were given up: first in groups, so that a thousand with one cause look like one thing, then one by
// one. Whole filters or chosen letters can be redriven or discarded; both count first.

import { html, useEffect, useState } from '../vendor/htm-preact.js';
import { get } from '../api.js';
import { Filters } from '../filters.js';
import { bytes, count, plural } from '../format.js';
import { useData, useSession, useTitle } from '../hooks.js';
import { deadFilter, discard, redrive } from '../actions.js';
import {
  Failure,
  Message,
  Nothing,
  Action,
  Problem,
  ReadOnlyNote,
  Section,
  State,
  Table,
  Time,
  Waiting,
} from '../parts.js';
import { link } from '../router.js';

const LIMIT = 50;
const REASONS = ['FAILED', 'ATTEMPTS_EXHAUSTED'];

export function DeadLetters({ route: { query } }) {
  useTitle('Dead letters');
  const { overview, ask } = useSession();
  const [pages, setPages] = useState([]);
  const filter = JSON.stringify(query);
  useEffect(() => setPages([]), [filter]);
  const groups = useData((signal) => get('/api/v1/dead-letters/groups', query, signal), filter);
  const after = pages.at(-1);
  const letters = useData(
    (signal) => get('/api/v1/dead-letters', { ...query, after, limit: LIMIT }, signal),
    `${filter} ${after ?? ''}`,
  );
  const fields = [
    { name: 'sink', label: 'Sink', suggestions: overview?.sinks.map((sink) => sink.sink) },
    { name: 'topic', label: 'Topic' },
    { name: 'reason', label: 'Reason', options: REASONS },
    { name: 'error_code', label: 'Error code' },
    { name: 'lane', label: 'Lane', more: true },
    { name: 'namespace', label: 'Namespace', more: true },
    { name: 'tenant_id', label: 'Tenant', more: true },
    { name: 'died_from', label: 'Died from', time: true, more: true },
    { name: 'died_to', label: 'Died before', time: true, more: true },
  ];
  const total = groups.data?.items.reduce((sum, group) => sum + group.count, 0);
  return html`<div class="head"><h1>Dead letters</h1><p class="muted">Not tried again until you say so. Correct the cause first, then redrive.</p></div>
    <${ReadOnlyNote} />
    <${Filters} path="dead-letters" fields=${fields} query=${query} />
    <${Problem} error=${groups.error || letters.error} retry=${() => {
      groups.reload();
      letters.reload();
    }} />
    ${(groups.loading || letters.loading) && !letters.error && html`<${Waiting} />`}
    ${total === 0 && letters.data?.items.length === 0 && html`<${Nothing}>${Object.keys(query).length ? 'No dead letter is like this.' : 'There are no dead letters.'}<//>`}
    ${total > 0 && html`<${Groups} groups=${groups.data.items} total=${total} query=${query} ask=${ask} />`}
    ${letters.data?.items.length > 0 && html`<${Letters} key=${`${filter} ${after ?? ''}`} page=${letters.data} query=${query} ask=${ask} />`}
    ${
      letters.data &&
      html`<div class="pager">
      ${pages.length > 0 && html`<button type="button" onClick=${() => setPages(pages.slice(0, -1))}>← Newer</button>`}
      ${letters.data.next && html`<button type="button" onClick=${() => setPages([...pages, letters.data.next])}>Older →</button>`}
    </div>`
    }`;
}

const kind = ({ sink, topic, reason, error_code }) => ({ sink, topic, reason, error_code });
const narrowed = (query, group) => ({ ...query, ...kind(group) });

function Groups({ groups, total, query, ask }) {
  const actions = (filter, what, amount) => html`<span class="actions">
    <${Action} small onAction=${() => ask(redrive(filter, what))}>Redrive ${amount}<//>
    <${Action} small danger onAction=${() => ask(discard(filter, what))}>Discard ${amount}<//>
  </span>`;
  const columns = [
    { label: 'Dead', number: true, cell: (group) => html`<strong>${count(group.count)}</strong>` },
    { label: 'Sink', name: (group) => group.sink, cell: (group) => group.sink },
    {
      label: 'Topic',
      name: (group) => group.topic,
      // A link cannot say "without a code".
      cell: (group) =>
        group.error_code ? html`<a href=${link('dead-letters', narrowed(query, group))}>${group.topic}</a>` : group.topic,
    },
    { label: 'Reason', cell: (group) => html`<${State} of=${group.reason} />` },
    {
      label: 'Last error',
      wide: true,
      cell: (group) => html`<${Failure} code=${group.error_code} message=${group.error_message} />`,
    },
    { label: 'First', cell: (group) => html`<${Time} at=${group.first_died_at} />` },
    { label: 'Last', cell: (group) => html`<${Time} at=${group.last_died_at} />` },
    {
      label: 'Actions',
      hide: true,
      cell: (group) =>
        actions(
          // An empty code means those without one.
          { ...deadFilter(query), ...kind(group), error_code: group.error_code ?? '' },
          `${plural(group.count, 'dead letter')} of ${group.topic} for ${group.sink}`,
          '',
        ),
    },
  ];
  const filtered = Object.keys(query).length > 0;
  const whole = actions(
    deadFilter(query),
    filtered ? 'all that match the filter' : 'every dead letter',
    `all ${count(total)}`,
  );
  return html`<${Section} id="groups" title="By cause" note=${plural(groups.length, 'group')} aside=${whole}>
    <${Table} label="Groups of dead letters" columns=${columns} rows=${groups} rowKey=${(group) => [group.sink, group.topic, group.reason, group.error_code].join(' ')} />
  <//>`;
}

const letterKey = (letter) => `${letter.message_id} ${letter.sink}`;

function Letters({ page, query, ask }) {
  const [chosen, setChosen] = useState([]);
  const picked = page.items.filter((letter) => chosen.includes(letterKey(letter)));
  const toggle = (letter) => {
    const key = letterKey(letter);
    setChosen(chosen.includes(key) ? chosen.filter((one) => one !== key) : [...chosen, key]);
  };
  const all = picked.length === page.items.length;
  const box = html`<label class="check"><input type="checkbox" checked=${all} onChange=${() => setChosen(all ? [] : page.items.map(letterKey))} /> Select this page</label>`;
  const columns = [
    {
      label: 'Select',
      hide: true,
      cell: (letter) => html`<input type="checkbox" aria-label=${`Select ${letter.message_id} for ${letter.sink}`}
      checked=${chosen.includes(letterKey(letter))} onChange=${() => toggle(letter)} />`,
    },
    { label: 'Message', cell: (letter) => html`<${Message} id=${letter.message_id} />` },
    { label: 'Sink', name: (letter) => letter.sink, cell: (letter) => letter.sink },
    { label: 'Topic', name: (letter) => letter.topic, cell: (letter) => letter.topic },
    {
      label: 'Lane',
      name: (letter) => letter.lane,
      cell: (letter) =>
        letter.lane
          ? html`${letter.parked && html`<${State} of="parked" /> `}<a href=${link('lanes', { lane: letter.lane })}>${letter.lane}</a>`
          : html`<span class="muted">–</span>`,
    },
    {
      label: 'Error',
      wide: true,
      cell: (letter) => html`<${Failure} code=${letter.error_code} message=${letter.error_message} />`,
    },
    { label: 'Attempts', number: true, cell: (letter) => count(letter.attempt_count) },
    { label: 'Size', number: true, cell: (letter) => bytes(letter.payload_size_bytes) },
    { label: 'Died', cell: (letter) => html`<${Time} at=${letter.died_at} />` },
  ];
  const aside = html`<span class="actions">${box}
    <${Picked} picked=${picked} query=${query} ask=${ask} /></span>`;
  return html`<${Section} id="letters" title="One by one" aside=${aside}>
    <${Table} label="Dead letters" columns=${columns} rows=${page.items} rowKey=${letterKey} tone=${(letter) => (chosen.includes(letterKey(letter)) ? 'chosen' : '')} />
  <//>`;
}

/** A filter names messages and one sink, so letters of several sinks are ordered sink by sink. */
function Picked({ picked, query, ask }) {
  const sinks = [...new Set(picked.map((letter) => letter.sink))];
  const several = sinks.length > 1;
  const filter = () =>
    deadFilter(
      { ...query, sink: sinks[0] },
      picked.map((letter) => letter.message_id),
    );
  const what = `${plural(picked.length, 'selected dead letter')} of ${sinks[0]}`;
  return html`${several && html`<span class="muted">Select letters of one sink only.</span>`}
    <${Action} small disabled=${!picked.length || several} onAction=${() => ask(redrive(filter(), what))}>Redrive ${picked.length || ''} selected<//>
    <${Action} small danger disabled=${!picked.length || several} onAction=${() => ask(discard(filter(), what))}>Discard ${picked.length || ''} selected<//>`;
}
