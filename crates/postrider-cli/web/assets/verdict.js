// What is wrong, worst first, with a place to go for each: the first answer an operator gets. Works on the answer of
// /api/v1/overview alone and draws nothing. Called by the overview and by the shell's mark in the navigation.

import { count, plural, relative, seconds } from './format.js';
import { link } from './router.js';

/** Due for longer than this means that a sink does not keep up; a healthy one delivers in milliseconds. */
export const BEHIND_AFTER_SECONDS = 60;

const GRAVE = 2;
const MINOR = 1;

/** A list of `{grave, sink?, what, why, links: [[text, href]]}`; empty if all is well. */
export function verdict({ sinks, relays }) {
  const found = [...relayProblems(sinks, relays), ...sinks.flatMap((sink) => sinkProblems(sink, relays))];
  return found.sort((a, b) => b.weight - a.weight).map(({ weight, ...rest }) => ({ grave: weight >= GRAVE, ...rest }));
}

function relayProblems(sinks, relays) {
  const waiting = sinks.reduce((sum, sink) => sum + sink.due, 0);
  const alive = relays.filter((relay) => !relay.silent);
  const found = [];
  if (alive.length === 0) {
    found.push({
      weight: waiting ? GRAVE + 9 : MINOR + 0.9,
      what: relays.length ? 'No relay is alive' : 'No relay is running',
      why: waiting
        ? `Nothing is delivered: ${plural(waiting, 'delivery is', 'deliveries are')} due and nobody takes them.`
        : 'Nothing is due now, but what comes will wait.',
      links: [],
    });
  }
  for (const relay of relays.filter((one) => one.silent)) {
    found.push({
      weight: MINOR + 0.5,
      what: `Relay ${relay.worker_id} is silent`,
      why: `It last reported ${relative(relay.reported_at)}: it was killed, or it cannot reach the database. What it held goes to others when its leases end.`,
      links: [],
    });
  }
  return found;
}

function sinkProblems(sink, relays) {
  const name = sink.sink;
  const found = [];
  const add = (weight, what, why, ...links) => found.push({ weight, sink: name, what, why, links });
  const error = sink.last_error ? ` The last error: ${sink.last_error}` : '';
  if (sink.state === 'breaker_open' || sink.state === 'half_open') {
    const again = openFor(name, relays) ? ` They try again in ${seconds(openFor(name, relays))}.` : '';
    add(
      GRAVE + 5,
      `${name} refuses everything`,
      `Its breaker is open: it failed many times in a row, so relays wait before they try again.${again}${error}`,
      ['What waits', link('lanes', { sink: name })],
      ['Sink', link('sinks')],
    );
  } else if (sink.state !== 'paused' && sink.breaker === 'open') {
    add(
      MINOR + 0.8,
      `${name} fails in ${sink.open} of ${plural(sink.relays, 'relay')}`,
      `Their breaker is open; the others still deliver.${error}`,
      ['Sink', link('sinks')],
    );
  } else if (sink.state === 'unserved' && sink.pending && !sink.recent?.dispatched && relays.some((relay) => !relay.silent)) {
    // A worker in SQL reports nothing: what it delivered tells that somebody serves the sink.
    add(
      GRAVE + 6,
      `No relay delivers to ${name}`,
      `${plural(sink.pending, 'delivery waits', 'deliveries wait')} for it, and no relay that is alive has a sink of this name.`,
      ['What waits', link('messages', { sink: name, state: 'pending' })],
    );
  }
  if (sink.parked_lanes) {
    add(
      GRAVE + 4,
      `${plural(sink.parked_lanes, 'lane')} of ${name} ${sink.parked_lanes === 1 ? 'is' : 'are'} parked`,
      'The head is dead and everything behind it waits for a person: redrive the head, or skip it.',
      ['See the lanes', link('lanes', { sink: name, state: 'parked' })],
    );
  }
  if (!sink.paused && sink.state === 'running' && sink.oldest_due_age_seconds > BEHIND_AFTER_SECONDS) {
    add(
      GRAVE + 3,
      `${name} is behind by ${seconds(sink.oldest_due_age_seconds)}`,
      `${plural(sink.due, 'delivery is', 'deliveries are')} due; the oldest has waited this long.`,
      ['What waits', link('messages', { sink: name, state: 'pending' })],
    );
  }
  if (sink.paused) {
    add(
      MINOR + 0.7,
      `${name} is paused`,
      sink.pending
        ? `${plural(sink.pending, 'delivery waits', 'deliveries wait')} until somebody resumes it.`
        : 'What comes for it will wait until somebody resumes it.',
      ['Sinks', link('sinks')],
    );
  }
  if (sink.dead > 0) {
    add(
      MINOR + 0.6,
      `${name} has ${plural(sink.dead, 'dead letter')}`,
      'They are not tried again until somebody redrives or discards them.',
      ['See why', link('dead-letters', { sink: name })],
    );
  }
  if (sink.expired > 0) {
    add(
      MINOR + 0.3,
      `${plural(sink.expired, 'lease')} of ${name} ended without an outcome`,
      'A relay died or hung while it held them; a living relay takes them over by itself.',
      ['Messages', link('messages', { sink: name, state: 'leased' })],
    );
  }
  return found;
}

/** For how much longer the relays leave a sink alone: the longest of them. */
export function openFor(sink, relays) {
  const reports = relays.filter((relay) => !relay.silent).flatMap((relay) => relay.sinks);
  return Math.max(0, ...reports.filter((one) => one.sink === sink).map((one) => one.open_for_seconds || 0));
}

/** One sentence for all of it. */
export function headline(found) {
  if (!found.length) return 'All is well';
  const grave = found.filter((one) => one.grave);
  if (!grave.length) return found.length === 1 ? found[0].what : `Delivering, with ${found.length} things to look at`;
  if (grave.some((one) => !one.sink)) return 'Nothing is delivered';
  const sinks = [...new Set(grave.map((one) => one.sink))];
  const named = sinks.length > 3 ? `${sinks.length} sinks` : sinks.join(', ').replace(/, ([^,]*)$/, ' and $1');
  return `${named} ${sinks.length === 1 ? 'is' : 'are'} stuck`;
}

/** The calm line under "All is well". */
export function calm({ sinks, relays }) {
  const pending = sinks.reduce((sum, sink) => sum + sink.pending, 0);
  const alive = relays.filter((relay) => !relay.silent).length;
  return `${plural(alive, 'relay')} at work for ${plural(sinks.length, 'sink')}; ${count(pending)} waiting, none of them late; no dead letters.`;
}
