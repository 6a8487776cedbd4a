// The first view: is all well, and if not, what is stuck and why, worst first. Below it how every sink does now and did
// in the last hour, and which relays are alive. Reads only.

import { html, useState } from '../vendor/htm-preact.js';
import { COLOURS, Chart, timeCeiling } from '../charts.js';
import { count, duration, oldest, rate } from '../format.js';
import { useSession, useTitle } from '../hooks.js';
import { Nothing, Problem, Section, SinkState, State, Table, Time, Waiting } from '../parts.js';
import { link } from '../router.js';
import { MEASURES, lastMinute, line, newest, useSamples } from '../samples.js';
import { calm, headline, verdict } from '../verdict.js';

const HOUR_MS = 3_600_000;

export function Overview() {
  useTitle('Overview');
  const { overview, error } = useSession();
  const samples = useSamples();
  if (!overview)
    return error
      ? html`<h1>Overview</h1><${Problem} error=${error} />`
      : html`<h1 class="unseen">Overview</h1><${Waiting} rows=${9} />`;
  const measured = samples.data || [];
  return html`
    <${Verdict} overview=${overview} />
    <${Section} id="sinks-now" title="Sinks" note=${measuredAt(measured)}>
      ${overview.sinks.length ? html`<${SinksNow} sinks=${overview.sinks} samples=${measured} />` : html`<${Nothing}>No message was enqueued yet, so there is no sink. Try: postrider enqueue --topic greeting --payload '{"hello":"world"}'<//>`}
    <//>
    <${Charts} sinks=${overview.sinks.map((sink) => sink.sink)} samples=${samples} />
    <${Relays} relays=${overview.relays} />`;
}

/** Rates and latencies are measured every ten seconds; the other figures are of now. */
function measuredAt(samples) {
  const last = samples.at(-1)?.at;
  return last ? html`rates over the last minute, p50 and p99 as of <${Time} at=${last} />` : 'rates over the last minute';
}

function Verdict({ overview }) {
  const found = verdict(overview);
  const grave = found.some((one) => one.grave);
  const tone = found.length === 0 ? 'ok' : grave ? 'bad' : 'warn';
  return html`<section class=${`verdict ${tone}`} aria-label="Verdict">
    <div class="verdict-head"><span class="light" aria-hidden="true"></span><h1>${headline(found)}</h1></div>
    ${found.length === 0 && html`<p class="verdict-calm">${calm(overview)}</p>`}
    ${
      found.length > 0 &&
      html`<ol class="findings">
      ${found.map(
        (one) => html`<li key=${one.what} class=${one.grave ? 'bad' : 'warn'}>
        <p class="finding-what"><strong>${one.what}</strong><span class="unseen">${one.grave ? ' (grave)' : ' (minor)'}</span></p>
        <p class="finding-why">${one.why}</p>
        <p class="finding-links">${one.links.map(([text, href]) => html`<a key=${text} href=${href}>${text}</a> `)}</p>
      </li>`,
      )}
    </ol>`
    }
  </section>`;
}

function SinksNow({ sinks, samples }) {
  const columns = [
    {
      label: 'Sink',
      name: (sink) => sink.sink,
      cell: (sink) =>
        html`<a href=${link('messages', { sink: sink.sink, state: 'pending' })}><strong>${sink.sink}</strong></a>`,
    },
    { label: 'State', cell: (sink) => html`<${SinkState} sink=${sink} />` },
    {
      label: 'Delivered/s',
      number: true,
      cell: (sink) => rate(lastMinute(samples, sink.sink, (attempts) => attempts.dispatched)),
    },
    {
      label: 'Failed/s',
      number: true,
      cell: (sink) =>
        toned(
          lastMinute(samples, sink.sink, (attempts) => attempts.retryable + attempts.failed),
          rate,
          'warn',
        ),
    },
    { label: 'Waiting', number: true, cell: (sink) => count(sink.pending) },
    { label: 'Oldest', number: true, cell: oldest },
    { label: 'p50', number: true, cell: (sink) => latency(newest(samples, sink.sink)?.latency_p50_ms) },
    { label: 'p99', number: true, cell: (sink) => latency(newest(samples, sink.sink)?.latency_p99_ms) },
    {
      label: 'Dead',
      number: true,
      cell: (sink) =>
        sink.dead
          ? html`<a class="bad-text" href=${link('dead-letters', { sink: sink.sink })}>${count(sink.dead)}</a>`
          : '0',
    },
  ];
  return html`<${Table} label="Sinks now" columns=${columns} rows=${sinks} rowKey=${(sink) => sink.sink} />`;
}

const latency = (ms) => (ms === null || ms === undefined ? '–' : duration(ms));
const toned = (value, format, tone) =>
  value ? html`<span class=${`${tone}-text`}>${format(value)}</span>` : format(value);

function Charts({ sinks, samples }) {
  const [cursor, setCursor] = useState(null);
  const [hidden, setHidden] = useState([]);
  const measured = samples.data || [];
  if (samples.error && !samples.data)
    return html`<${Section} id="hour" title="The last hour"><${Problem} error=${samples.error} /><//>`;
  if (samples.data && measured.length === 0) {
    return html`<${Section} id="hour" title="The last hour"><${Nothing}>Nothing was measured yet: a running relay measures every ten seconds.<//><//>`;
  }
  const to = measured.length ? Date.parse(measured.at(-1).at) : Date.now();
  const shown = sinks.filter((sink) => !hidden.includes(sink));
  const lines = (measure) =>
    shown.map((sink) => ({ name: sink, colour: sinks.indexOf(sink) % COLOURS, points: line(measured, sink, measure) }));
  const common = { from: to - HOUR_MS, to, cursor, onCursor: setCursor };
  const toggle = (sink) => setHidden(hidden.includes(sink) ? hidden.filter((one) => one !== sink) : [...hidden, sink]);
  const legend = html`<span class="legend">${sinks.map(
    (sink, index) => html`<button type="button" key=${sink} class="small legend-item"
    aria-pressed=${!hidden.includes(sink)} onClick=${() => toggle(sink)}><span class=${`chip colour-${index % COLOURS}`}></span>${sink}</button>`,
  )}</span>`;
  return html`<${Section} id="hour" title="The last hour" aside=${legend}>
    <div class="charts">
      <${Chart} title="Delivered" unit="a second" series=${lines(MEASURES.delivered)} format=${rate} ...${common} />
      <${Chart} title="Failed attempts" unit="a second" series=${lines(MEASURES.failed)} format=${rate} ...${common} />
      <${Chart} title="Waiting" unit="deliveries" series=${lines(MEASURES.pending)} format=${compact} ...${common} />
      <${Chart} title="Oldest" unit="age" series=${lines(MEASURES.age)} format=${short} ceiling=${timeCeiling} ...${common} />
      <${Chart} title="Latency p50" unit="enqueue to delivery" series=${lines(MEASURES.p50)} format=${short} ceiling=${timeCeiling} ...${common} />
      <${Chart} title="Latency p99" unit="enqueue to delivery" series=${lines(MEASURES.p99)} format=${short} ceiling=${timeCeiling} ...${common} />
    </div>
  <//>`;
}

const compact = (value) =>
  new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 }).format(value);
/** One unit, for the narrow margin of a chart. */
function short(ms) {
  if (ms === 0) return '0';
  if (ms < 1_000) return `${+ms.toPrecision(3)} ms`;
  if (ms < 120_000) return `${+(ms / 1_000).toPrecision(3)} s`;
  if (ms < 7_200_000) return `${+(ms / 60_000).toPrecision(3)} min`;
  return `${+(ms / 3_600_000).toPrecision(3)} h`;
}

function Relays({ relays }) {
  const columns = [
    {
      label: 'Relay',
      name: (relay) => relay.worker_id,
      cell: (relay) => html`<strong class="mono">${relay.worker_id}</strong>`,
    },
    { label: 'State', cell: (relay) => html`<${State} of=${relay.silent ? 'silent' : 'alive'} />` },
    { label: 'Reported', cell: (relay) => html`<${Time} at=${relay.reported_at} />` },
    { label: 'Running since', cell: (relay) => html`<${Time} at=${relay.started_at} />` },
    { label: 'Holds', number: true, cell: (relay) => count(relay.sinks.reduce((sum, sink) => sum + sink.held, 0)) },
    { label: 'Sinks', wide: true, cell: (relay) => relay.sinks.map((sink) => sink.sink).join(', ') },
    { label: 'Version', cell: (relay) => relay.version },
  ];
  return html`<${Section} id="relays" title="Relays">
    ${relays.length ? html`<${Table} label="Relays" columns=${columns} rows=${relays} rowKey=${(relay) => relay.worker_id} />` : html`<${Nothing}>No relay reported lately. Start one with: postrider run<//>`}
  <//>`;
}
