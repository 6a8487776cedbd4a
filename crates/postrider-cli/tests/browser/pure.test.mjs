// What the page computes without a browser: the verdict, the words for times, the scale of a chart, addresses, orders.
// Run with Node's own test runner by tests/it/browser.rs.

import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';

// To Node a .js file is a module only where a package says so, and what is embedded in the program is no package.
const copy = mkdtempSync(join(tmpdir(), 'postrider-page-'));
process.on('exit', () => rmSync(copy, { recursive: true }));
cpSync(fileURLToPath(new URL('../../web/assets', import.meta.url)), copy, { recursive: true });
writeFileSync(join(copy, 'package.json'), '{"type": "module"}');

const store = new Map();
globalThis.location = { search: '', hash: '' };
globalThis.sessionStorage = { getItem: (key) => store.get(key) ?? null };
const at = (file) => import(pathToFileURL(join(copy, file)));
const { niceCeiling, timeCeiling } = await at('charts.js');
const { bytes, duration, oldest, rate, relative } = await at('format.js');
const { deadFilter, deliveryFilter } = await at('actions.js');
const { hexadecimal } = await at('payload.js');
const { link, parseRoute } = await at('router.js');
const { merge } = await at('samples.js');
const { found, rights } = await at('shell.js');
const { headline, verdict } = await at('verdict.js');
const { attempts, attemptsLeft } = await at('views/message.js');
const { words } = await at('views/audit.js');
const { example } = await at('views/api.js');

const sink = (changes) => ({
  sink: 'billing',
  state: 'running',
  paused: false,
  pending: 0,
  due: 0,
  leased: 0,
  expired: 0,
  dead: 0,
  parked_lanes: 0,
  oldest_pending_age_seconds: 0,
  oldest_due_age_seconds: 0,
  breaker: 'closed',
  relays: 1,
  open: 0,
  ...changes,
});
const relay = (changes) => ({
  worker_id: 'r',
  silent: false,
  reported_at: '2027-01-31T08:00:00Z',
  sinks: [{ sink: 'billing' }],
  ...changes,
});
const heads = (sinks, relays) => verdict({ sinks, relays }).map((one) => one.what);

test('the oldest has an age while anything is pending, due or not', () => {
  assert.equal(oldest(sink({ pending: 3, oldest_pending_age_seconds: 60 })), duration(60_000));
  assert.equal(oldest(sink({ leased: 1, oldest_pending_age_seconds: 60 })), duration(60_000));
  assert.equal(oldest(sink({ dead: 2 })), '–');
});

test('all is well when nothing waits for a person and nothing is late', () => {
  const found = verdict({ sinks: [sink({ pending: 9, due: 9, oldest_due_age_seconds: 2 })], relays: [relay()] });
  assert.equal(headline(found), 'All is well');
});

test('the worst comes first', () => {
  const sinks = [
    sink({ dead: 2 }),
    sink({ sink: 'a', state: 'paused', paused: true, pending: 1, due: 1, oldest_due_age_seconds: 9_999 }),
    sink({ sink: 'b', parked_lanes: 1 }),
    sink({ sink: 'c', state: 'breaker_open', breaker: 'open', due: 5, oldest_due_age_seconds: 700 }),
    sink({ sink: 'd', due: 1, oldest_due_age_seconds: 61 }),
  ];
  const relays = [relay({ sinks: ['billing', 'a', 'b', 'c', 'd'].map((name) => ({ sink: name })) })];
  assert.deepEqual(heads(sinks, relays), [
    'c refuses everything',
    '1 lane of b is parked',
    'd is behind by 1 min 1 s',
    'a is paused',
    'billing has 2 dead letters',
  ]);
  assert.equal(headline(verdict({ sinks, relays })), 'c, b and d are stuck');
});

test('nobody delivers: no relay, only silent ones, or none for that sink', () => {
  assert.deepEqual(heads([sink({ due: 3 })], []), ['No relay is running']);
  assert.equal(
    headline(verdict({ sinks: [sink({ due: 3 })], relays: [relay({ silent: true })] })),
    'Nothing is delivered',
  );
  const unserved = { state: 'unserved', breaker: null, relays: 0 };
  assert.deepEqual(heads([sink({ pending: 3, ...unserved })], [relay({ sinks: [] })]), ['No relay delivers to billing']);
  assert.deepEqual(heads([sink(unserved)], [relay({ sinks: [] })]), [], 'nothing waits for it');
});

test('a breaker that is open in some relays only is a minor thing', () => {
  const found = verdict({ sinks: [sink({ breaker: 'open', relays: 3, open: 1 })], relays: [relay()] });
  assert.deepEqual(
    found.map(({ grave, what }) => [grave, what]),
    [[false, 'billing fails in 1 of 3 relays']],
  );
});

test('attempts are told with how many are left', () => {
  const told = (attempt_count, attempt_no, max_attempts) => {
    const delivery = { attempt_count, attempt_no, max_attempts };
    return [attempts(delivery), attemptsLeft(delivery)];
  };
  assert.deepEqual(told(9, 9, 10), ['9 of 10', 1]);
  assert.deepEqual(told(1, 13, 10), ['1 of 10, 13 in all', 9]);
  assert.deepEqual(told(0, 0, null), ['0', null]);
});

test('lengths of time are told in at most two units', () => {
  const told = [0, 4.4, 320, 4_200, 59_400, 192_000, 3_600_000, 187_200_000].map(duration);
  assert.deepEqual(told, ['0 ms', '4 ms', '320 ms', '4.2 s', '59 s', '3 min 12 s', '1 h', '2 d 4 h']);
  assert.equal(duration(null), '–');
  assert.equal(relative(new Date(Date.now() - 65_000).toISOString()), '1 min ago');
  assert.equal(relative(new Date(Date.now() + 125_000).toISOString()), 'in 2 min');
  assert.deepEqual(
    [rate(0), rate(0.0003), rate(0.25), rate(4.24), rate(1_234.4), rate(null)],
    ['0', '<0.01', '0.25', '4.2', '1,234', '–'],
  );
  assert.deepEqual([bytes(12), bytes(2_048)], ['12 B', '2.0 KiB']);
});

test('a chart ends at a round value', () => {
  assert.deepEqual([0, 0.3, 1, 3, 12, 101, 2_600].map(niceCeiling), [1, 0.5, 1, 5, 20, 200, 5_000]);
  assert.deepEqual([900, 45_000, 600_000, 5_000_000].map(timeCeiling), [1_000, 60_000, 600_000, 7_200_000]);
});

test('an address survives the way there and back', () => {
  const place = link(['messages', 'a/b c'], { lane: 'x&y=1', topic: '', state: undefined });
  assert.deepEqual(parseRoute(place), { path: ['messages', 'a/b c'], query: { lane: 'x&y=1' } });
  assert.deepEqual(parseRoute('#/%zz').path, ['%zz']);
});

test('an action carries what was filtered and nothing else', () => {
  assert.deepEqual(deadFilter({ sink: 'a', topic: '', unknown: 'x' }, ['id']), { sink: 'a', message_ids: ['id'] });
  assert.deepEqual(deliveryFilter({ state: 'pending', lane: 'l', sink: '', from: 'x' }), { lane: 'l' });
});

test('samples are kept once, in order, for an hour', () => {
  const one = { at: '2027-01-31T08:00:00Z', sink: 'a', pending: 1 };
  const two = { at: '2027-01-31T08:00:10Z', sink: 'a', pending: 2 };
  assert.deepEqual(merge([one], [two, { ...one, pending: 3 }], 0), [{ ...one, pending: 3 }, two]);
  assert.deepEqual(merge([one], [two], Date.parse(two.at)), [two]);
});

test('a search goes by what the text looks like', () => {
  const id = '019A8F3C-6b1e-7c02-9d55-8930f0599708';
  assert.deepEqual(found(id), [['messages', id.toLowerCase()]]);
  for (const tail of ['8930f0599708', '…8930F0599708', '...8930f0599708']) {
    assert.deepEqual(found(tail), ['messages', { id: '8930f0599708' }]);
  }
  assert.deepEqual(found('order.*'), ['messages', { topic: 'order.*' }]);
  assert.deepEqual(found('cafe'), ['messages', { lane: 'cafe' }]);
});

test('who may do what is said with its reason', () => {
  const may = (enabled, role) => rights({ admin: { enabled, role } });
  assert.equal(may(true, 'operate').operate, true);
  assert.match(may(true, 'read').reason, /only read/);
  assert.match(may(false, 'none').reason, /POSTRIDER_ADMIN_TOKEN/);
  assert.equal(may(false, 'none').canSignIn, false);
});

test('bytes, actions and schemas are put into words', () => {
  assert.equal(hexadecimal(new Uint8Array([0, 65, 255])), `00000000  ${'00 41 ff'.padEnd(47)}  .A.`);
  assert.equal(
    words({ sink: 'a', message_ids: ['1', '2'], at_most: 5 }),
    'sink a · message ids 1, 2',
  );
  const schemas = {
    Body: {
      type: 'object',
      properties: {
        topic: { type: 'string' },
        limit: { type: ['integer', 'null'] },
        self: { $ref: '#/components/schemas/Body' },
      },
    },
  };
  assert.deepEqual(Object.keys(example({ $ref: '#/components/schemas/Body' }, schemas)), ['topic', 'limit', 'self']);
});
