// Who did what, when, and what it changed: the append-only record that every action writes with its own transaction.
// Reads only, a page at a time.

import { html, useState } from '../vendor/htm-preact.js';
import { get } from '../api.js';
import { count } from '../format.js';
import { useData, useTitle } from '../hooks.js';
import { Nothing, Problem, Table, Time, Waiting } from '../parts.js';

const LIMIT = 50;

export function Audit() {
  useTitle('Audit');
  const [pages, setPages] = useState([]);
  const after = pages.at(-1);
  const audit = useData((signal) => get('/api/v1/audit', { after, limit: LIMIT }, signal), `audit ${after ?? ''}`);
  const items = audit.data?.items;
  return html`<div class="head"><h1>Audit</h1><p class="muted">What operators did, from the page, the API, the command line and by SQL. Nothing here can be changed.</p></div>
    <${Problem} error=${audit.error} retry=${audit.reload} />
    ${audit.loading && html`<${Waiting} />`}
    ${items?.length === 0 && html`<${Nothing}>${after ? 'Nothing older.' : 'Nobody has changed anything yet.'}<//>`}
    ${items?.length > 0 && html`<${List} items=${items} />`}
    <div class="pager">
      ${pages.length > 0 && html`<button type="button" onClick=${() => setPages(pages.slice(0, -1))}>← Newer</button>`}
      ${audit.data?.next && html`<button type="button" onClick=${() => setPages([...pages, audit.data.next])}>Older →</button>`}
    </div>`;
}

function List({ items }) {
  const columns = [
    { label: 'When', cell: (entry) => html`<${Time} at=${entry.at} />` },
    { label: 'Who', name: (entry) => entry.actor, cell: (entry) => html`<span class="mono">${entry.actor}</span>` },
    { label: 'Login', cell: (entry) => html`<span class="mono">${entry.db_user ?? '–'}</span>` },
    { label: 'What', cell: (entry) => html`<strong>${entry.action.replaceAll('_', ' ')}</strong>` },
    { label: 'Changed', number: true, cell: (entry) => count(entry.affected) },
    { label: 'Detail', wide: true, cell: (entry) => html`<span class="detail">${words(entry.detail)}</span>` },
  ];
  return html`<${Table} label="Audit" columns=${columns} rows=${items} rowKey=${(entry) => entry.id} />`;
}

/** `sink billing · error code TIMEOUT`: the action's JSON, flat and without braces, nor the limit that every action has. */
export function words(detail) {
  const said = [];
  const visit = (name, value) => {
    if (value === null || value === undefined || name === 'at_most') return;
    if (Array.isArray(value))
      said.push(
        `${label(name)} ${value.length > 3 ? `${value.slice(0, 3).join(', ')} and ${value.length - 3} more` : value.join(', ')}`,
      );
    else if (typeof value === 'object') Object.entries(value).forEach(([key, inner]) => visit(key, inner));
    else said.push(`${label(name)} ${value}`);
  };
  Object.entries(detail || {}).forEach(([name, value]) => visit(name, value));
  return said.join(' · ') || '–';
}

const label = (name) => name.replaceAll('_', ' ');
