// A place to try the API: reads its own description from /api/openapi.json, makes a form for each operation, and shows
// the answer as it came. It sends with the token of this tab, so writes are real.

import { html, useMemo, useState } from '../vendor/htm-preact.js';
import { address, get, send } from '../api.js';
import { useData, useTitle } from '../hooks.js';
import { Copy, Problem, Waiting } from '../parts.js';
import { go } from '../router.js';

const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

export function Api({ route: { query } }) {
  useTitle('API');
  const description = useData((signal) => get('/api/openapi.json', {}, signal), 'openapi');
  const operations = useMemo(() => (description.data ? list(description.data) : []), [description.data]);
  const chosen = operations.find((operation) => operation.id === query.operation) || operations[0];
  return html`<div class="head"><h1>API</h1><p class="muted">Everything on this page is done with it. Its description: <a href="/api/openapi.json">/api/openapi.json</a></p></div>
    <${Problem} error=${description.error} retry=${description.reload} />
    ${description.loading && html`<${Waiting} rows=${10} />`}
    ${
      chosen &&
      html`<div class="api">
      <${Operations} operations=${operations} chosen=${chosen} />
      <${Try} key=${chosen.id} operation=${chosen} schemas=${description.data.components?.schemas || {}} />
    </div>`
    }`;
}

function list({ paths }) {
  return Object.entries(paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => ({
      id: `${method} ${path}`,
      method: method.toUpperCase(),
      path,
      ...methods[method],
      parameters: [...(methods.parameters || []), ...(methods[method].parameters || [])],
    })),
  );
}

function Operations({ operations, chosen }) {
  return html`<nav class="operations" aria-label="Operations">
    <label class="field operations-small"><span>Operation</span>
      <select value=${chosen.id} onChange=${(event) => go('api', { operation: event.currentTarget.value })}>
        ${operations.map((operation) => html`<option key=${operation.id} value=${operation.id} selected=${operation === chosen}>${operation.id}</option>`)}
      </select></label>
    <ul>${operations.map(
      (operation) => html`<li key=${operation.id}>
      <a href=${`#/api?operation=${encodeURIComponent(operation.id)}`} aria-current=${operation === chosen ? 'true' : undefined}>
        <span class=${`method ${operation.method.toLowerCase()}`}>${operation.method}</span> <span class="mono">${operation.path.replace('/api/v1', '')}</span></a>
    </li>`,
    )}</ul>
  </nav>`;
}

function Try({ operation, schemas }) {
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const schema = operation.requestBody?.content?.['application/json']?.schema;
  const submit = async (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.currentTarget));
    setBusy(true);
    setError(null);
    try {
      const url = fill(operation, given);
      const started = performance.now();
      const got = await send(operation.method, url, given[' body'] || undefined);
      setAnswer({ ...got, url, took: performance.now() - started });
    } catch (failed) {
      setError({ message: failed.message, code: failed.name, hint: 'Is the server still there?' });
    }
    setBusy(false);
  };
  return html`<div class="try">
    <h2><span class=${`method ${operation.method.toLowerCase()}`}>${operation.method}</span> <span class="mono">${operation.path}</span></h2>
    ${operation.summary && html`<p>${operation.summary}</p>`}
    ${operation.description && operation.description !== operation.summary && html`<p class="muted">${operation.description}</p>`}
    <form onSubmit=${submit}>
      <div class="filters">${operation.parameters.filter((parameter) => parameter.in !== 'header').map((parameter) => html`<${Parameter} key=${parameter.name} parameter=${parameter} />`)}</div>
      ${
        schema &&
        html`<label class="field"><span>Body (JSON)</span>
        <textarea name=" body" rows="8" spellcheck=${false}>${JSON.stringify(example(schema, schemas), null, 2)}</textarea></label>`
      }
      <p><button type="submit" class="primary" disabled=${busy}>${busy ? 'Sending…' : `Send ${operation.method}`}</button>
        ${operation.method !== 'GET' && html` <span class="warn-text">This is real: it changes things.</span>`}</p>
    </form>
    <${Problem} error=${error} />
    ${answer && html`<${Answer} answer=${answer} method=${operation.method} />`}
  </div>`;
}

function Parameter({ parameter: { name, required, schema = {}, description, in: place } }) {
  const label = html`<span>${name}${required ? ' *' : ''} <span class="muted">${place}</span></span>`;
  const options = schema.enum || schema.oneOf?.flatMap((one) => one.enum || []) || [];
  if (options.length) {
    return html`<label class="field" title=${description}>${label}<select name=${`${place} ${name}`}><option value="">–</option>
      ${options.map((option) => html`<option key=${option} value=${option}>${option}</option>`)}</select></label>`;
  }
  return html`<label class="field" title=${description}>${label}
    <input type="text" name=${`${place} ${name}`} required=${required} placeholder=${schema.format || schema.type} autocomplete="off" spellcheck=${false} /></label>`;
}

function fill(operation, given) {
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(given[`path ${name}`] || ''));
  const query = Object.entries(given)
    .filter(([name]) => name.startsWith('query '))
    .map(([name, value]) => [name.slice(6), value]);
  return address(path, Object.fromEntries(query));
}

/** A body to start from: every field of the schema with an empty value of its kind. */
export function example(schema, schemas, depth = 0) {
  if (!schema || depth > 4) return null;
  if (schema.example !== undefined) return schema.example;
  if (schema.default !== undefined) return schema.default;
  if (schema.$ref) return example(schemas[schema.$ref.split('/').pop()], schemas, depth + 1);
  const one = schema.oneOf || schema.anyOf;
  if (one)
    return example(
      one.find((option) => option.type !== 'null'),
      schemas,
      depth + 1,
    );
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((part) => example(part, schemas, depth + 1)));
  const type = [].concat(schema.type).find((name) => name !== 'null');
  if (type === 'object')
    return Object.fromEntries(
      Object.entries(schema.properties || {}).map(([name, inner]) => [name, example(inner, schemas, depth + 1)]),
    );
  return { string: schema.enum?.[0] ?? '', integer: 0, number: 0, boolean: false, array: [] }[type] ?? null;
}

function Answer({ answer, method }) {
  const text = pretty(answer.text);
  return html`<section class="answer" aria-label="Answer" aria-live="polite">
    <p class="payload-head"><span class=${`state ${answer.status < 400 ? 'ok' : 'bad'}`}>${answer.status}</span>
      <span class="mono answer-url">${method} ${answer.url}</span> <span class="muted">${Math.round(answer.took)} ms</span><${Copy} text=${text} label="the answer" /></p>
    <pre tabindex="0" aria-label="Answer">${text || '(empty)'}</pre>
  </section>`;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
