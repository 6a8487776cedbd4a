// Talks to the admin API: adds the token and the chosen database, and turns every refusal into an ApiError that carries
// the server's own hint. Called by the views and hooks; it knows nothing of how things look. The token lives in
// sessionStorage only: closing the tab forgets it.

const TOKEN_KEY = 'postrider.token';
/** A server that does not answer for this long is told as an error. An action may take a while: it is carried out in batches. */
const ANSWER_WITHIN_MS = { GET: 20_000, POST: 90_000 };

/** The database of this tab, from the address (`/?database=crm`); null is the first one. */
export const database = new URLSearchParams(location.search).get('database');

/** What the server refused, in its own words. */
export class ApiError extends Error {
  constructor(status, { code, message, hint } = {}) {
    super(message || `the server answered ${status}`);
    this.status = status;
    this.code = code || `HTTP_${status}`;
    this.hint = hint || '';
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY),
  set: (value) => sessionStorage.setItem(TOKEN_KEY, value),
  forget: () => sessionStorage.removeItem(TOKEN_KEY),
};

/** Called whenever the server wants a token, or another one. */
const listeners = new Set();
export function onUnauthorized(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The address of an endpoint, without parameters that are empty. */
export function address(path, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...query, database: query.database ?? database })) {
    if (value !== undefined && value !== null && value !== '') parameters.set(name, value);
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

/** Sends a request as it is, and returns status, headers and text: for the page that tries the API. */
export async function send(method, url, body, signal) {
  const headers = { Accept: 'application/json' };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const timeout = AbortSignal.timeout(ANSWER_WITHIN_MS[method] ?? ANSWER_WITHIN_MS.POST);
  const response = await fetch(url, {
    method,
    headers,
    body,
    signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    cache: 'no-store',
    credentials: 'omit',
  });
  return { status: response.status, type: response.headers.get('content-type') || '', text: await response.text() };
}

async function call(method, path, query, body, signal, reviver) {
  let answer;
  try {
    answer = await send(method, address(path, query), body === undefined ? undefined : JSON.stringify(body), signal);
  } catch (error) {
    if (signal?.aborted) throw error;
    const late = error.name === 'TimeoutError';
    throw new ApiError(0, {
      code: late ? 'NO_ANSWER' : 'UNREACHABLE',
      message: late ? 'the server did not answer in time' : 'the server cannot be reached',
      hint: 'Is postrider still running, and the network up? The page keeps trying.',
    });
  }
  const parsed = parse(answer.text, reviver);
  if (answer.status < 400) return parsed;
  const error = new ApiError(answer.status, parsed?.error);
  if (answer.status === 401) listeners.forEach((listener) => listener(error));
  throw error;
}

function parse(text, reviver) {
  try {
    return JSON.parse(text, reviver);
  } catch {
    return null;
  }
}

export const get = (path, query, signal) => call('GET', path, query, undefined, signal);
/** With numbers that JavaScript cannot hold kept as they were written, where the browser can: for payloads. */
export const getExact = (path, signal) => call('GET', path, {}, undefined, signal, exact);
export function exact(_, value, context) {
  const changed = typeof value === 'number' && context?.source !== undefined && String(value) !== context.source;
  return changed && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}
export const post = (path, body = {}) => call('POST', path, {}, body);
