// The form above a listing. What it asks for is kept in the address, so that a filtered view can be bookmarked and sent to
// a colleague. Called by the listings; it fetches nothing itself.

import { html, useState } from './vendor/htm-preact.js';
import { fromLocalInput, toLocalInput } from './format.js';
import { go } from './router.js';

/** Fields are `{name, label, options?, time?, placeholder?, more?}`; those with `more` hide behind a button until used. */
export function Filters({ path, fields, query }) {
  const used = fields.filter((field) => query[field.name]);
  const [open, setOpen] = useState(used.some((field) => field.more));
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    const next = {};
    for (const field of fields) {
      const value = (given.get(field.name) ?? query[field.name] ?? '').trim();
      next[field.name] = field.time && given.has(field.name) ? fromLocalInput(value) : value;
    }
    go(path, next);
  };
  const shown = fields.filter((field) => open || !field.more);
  return html`<form class="filters" role="search" aria-label="Filter" key=${JSON.stringify(query)} onSubmit=${submit}>
    ${shown.map((field) => html`<${Field} key=${field.name} field=${field} value=${query[field.name] || ''} />`)}
    <div class="filter-buttons">
      <button type="submit" class="primary">Filter</button>
      ${used.length > 0 && html`<a class="button" href=${`#/${path}`}>Clear</a>`}
      ${
        fields.some((field) => field.more) &&
        html`<button type="button" aria-expanded=${open}
        onClick=${() => setOpen(!open)}>${open ? 'Fewer' : 'More'} filters</button>`
      }
    </div>
  </form>`;
}

function Field({ field, value }) {
  const { name, label, options, time, placeholder, suggestions } = field;
  if (options) {
    return html`<label class="field"><span>${label}</span>
      <select name=${name} value=${value} onChange=${(event) => event.currentTarget.form.requestSubmit()}>
        <option value="">any</option>
        ${options.map((option) => html`<option key=${option} value=${option} selected=${option === value}>${option.toLowerCase().replaceAll('_', ' ')}</option>`)}
      </select></label>`;
  }
  if (time) {
    return html`<label class="field"><span>${label}</span>
      <input type="datetime-local" step="1" name=${name} defaultValue=${toLocalInput(value)} value=${toLocalInput(value)} /></label>`;
  }
  return html`<label class="field"><span>${label}</span>
    <input type="text" name=${name} value=${value} placeholder=${placeholder} list=${suggestions && `list-${name}`}
      autocomplete="off" autocapitalize="off" spellcheck=${false} />
    ${suggestions && html`<datalist id=${`list-${name}`}>${suggestions.map((text) => html`<option key=${text} value=${text}></option>`)}</datalist>`}
  </label>`;
}
