// Turns numbers and times into words that are short and line up in columns. Called by every view. Times are told relative
// to the store's clock, for the browser's may be off; `setClock` is called whenever the server says what time it is.

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

let offsetMs = 0;
export function setClock(serverNow) {
  const at = Date.parse(serverNow);
  if (!Number.isNaN(at)) offsetMs = at - Date.now();
}
export const clock = () => Date.now() + offsetMs;

const grouped = new Intl.NumberFormat('en-US');
export const count = (value) => (value === null || value === undefined ? '–' : grouped.format(value));

/** `1 lane`, `3 lanes`. */
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** A rate with as many digits as help: 0.25, 4.2, 118. */
export function rate(value) {
  if (value === null || value === undefined) return '–';
  if (value > 0 && value < 0.01) return '<0.01';
  if (value < 1) return String(Number(value.toPrecision(2)));
  return value < 10 ? value.toFixed(1) : grouped.format(Math.round(value));
}

/** A length of time in its two largest useful units: `320 ms`, `4.2 s`, `3 min 12 s`, `2 d 4 h`. */
export function duration(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms < 1) return '0 ms';
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${(ms / SECOND).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.round(ms / SECOND)} s`;
  if (ms < HOUR) return pair(ms, MINUTE, 'min', SECOND, 's');
  if (ms < DAY) return pair(ms, HOUR, 'h', MINUTE, 'min');
  return pair(ms, DAY, 'd', HOUR, 'h');
}

function pair(ms, large, largeName, small, smallName) {
  const rest = Math.floor((ms % large) / small);
  const whole = `${Math.floor(ms / large)} ${largeName}`;
  return rest ? `${whole} ${rest} ${smallName}` : whole;
}

export const seconds = (value) => (value === null || value === undefined ? '–' : duration(value * SECOND));

/** How long ago the oldest of a sink that is not delivered occurred. */
export const oldest = (sink) => (sink.pending + sink.leased ? seconds(sink.oldest_pending_age_seconds) : '–');

/** `now`, `12 s ago`, `in 3 min`. */
export function relative(time) {
  const ms = clock() - Date.parse(time);
  if (Number.isNaN(ms)) return String(time);
  const size = Math.abs(ms);
  if (size < SECOND) return 'now';
  const text = size < MINUTE ? `${Math.floor(size / SECOND)} s` : coarse(size);
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

function coarse(ms) {
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h`;
  return `${Math.floor(ms / DAY)} d`;
}

/** The moment itself, to the millisecond, in UTC and in the reader's zone. */
export function absolute(time) {
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return String(time);
  const local = at.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
  return `${at.toISOString().replace('T', ' ').replace('Z', ' UTC')} (here: ${local})`;
}

export const timeOfDay = (ms) => new Date(ms).toTimeString().slice(0, 5);

export function bytes(value) {
  if (value === null || value === undefined) return '–';
  if (value < 1024) return `${value} B`;
  if (value < 1024 ** 2) return `${(value / 1024).toFixed(1)} KiB`;
  return `${(value / 1024 ** 2).toFixed(1)} MiB`;
}

/** What tells one id from another: UUIDv7 begin alike, so their end is shown. */
export const shortId = (id) => `…${id.slice(-12)}`;

/** For an <input type="datetime-local">, and back. */
export function toLocalInput(time) {
  const at = new Date(time);
  if (!time || Number.isNaN(at.getTime())) return '';
  return new Date(at.getTime() - at.getTimezoneOffset() * MINUTE).toISOString().slice(0, 19);
}
export const fromLocalInput = (text) => (text ? new Date(text).toISOString() : '');
