// Keeps the last hour of measurements: the whole hour is asked for once, then only what came since. Called by the
// overview, which draws it. Samples are put in order of time and sink, and none is kept twice.

import { useRef } from './vendor/htm-preact.js';
import { get } from './api.js';
import { REFRESH_MS, useData } from './hooks.js';

const HOUR_SECONDS = 3_600;
/** Asked for again each time: a sample is written every ten seconds, and a relay may be late with it. */
const OVERLAP_SECONDS = 60;

/** Adds newer samples to older ones, and forgets what is too old. */
export function merge(old, fresh, oldest) {
  const known = new Map(old.map((sample) => [`${sample.at} ${sample.sink}`, sample]));
  for (const sample of fresh) known.set(`${sample.at} ${sample.sink}`, sample);
  return [...known.values()]
    .filter((sample) => Date.parse(sample.at) >= oldest)
    .sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0));
}

export function useSamples() {
  const kept = useRef({ samples: [], asked: 0 });
  return useData(
    async (signal) => {
      const since = (Date.now() - kept.current.asked) / 1_000;
      const within = Math.ceil(Math.min(HOUR_SECONDS, since + OVERLAP_SECONDS));
      const asked = Date.now();
      const { items: samples } = await get('/api/v1/samples', { within_seconds: within }, signal);
      const newest = Math.max(
        0,
        ...samples.map((sample) => Date.parse(sample.at)),
        ...kept.current.samples.slice(-1).map((sample) => Date.parse(sample.at)),
      );
      kept.current = { samples: merge(kept.current.samples, samples, newest - HOUR_SECONDS * 1_000), asked };
      return kept.current.samples;
    },
    'samples',
    REFRESH_MS,
  );
}

const perSecond = (sample, amount) => (sample.seconds > 0 ? amount / sample.seconds : 0);

/** What is drawn: the title, the unit, and the value of a sample. */
export const MEASURES = {
  delivered: (sample) => perSecond(sample, sample.attempts.dispatched),
  failed: (sample) =>
    perSecond(sample, sample.attempts.retryable + sample.attempts.failed + sample.attempts.zombie_requeue),
  pending: (sample) => sample.pending,
  age: (sample) => sample.oldest_pending_age_seconds * 1_000,
  p50: (sample) => sample.latency_p50_ms,
  p99: (sample) => sample.latency_p99_ms,
};

/** One line: the points of a sink. */
export function line(samples, sink, measure) {
  return samples.filter((sample) => sample.sink === sink).map((sample) => [Date.parse(sample.at), measure(sample)]);
}

/** The newest measurement of a sink. */
export const newest = (samples, sink) => samples.findLast((sample) => sample.sink === sink) ?? null;

/** Over the last minute, for ten seconds of a quiet sink say little. */
export function lastMinute(samples, sink, amount) {
  const own = samples.filter((sample) => sample.sink === sink).slice(-6);
  const length = own.reduce((sum, sample) => sum + sample.seconds, 0);
  return length > 0 ? own.reduce((sum, sample) => sum + amount(sample.attempts), 0) / length : null;
}
