// Lines over time, drawn as SVG: one line for each sink, gaps where nothing was measured. Pointer and arrow keys move a
// cross-hair that tells every value of that moment. Called by the overview; colours come from overview.css, so that both
// themes fit, and nothing here knows what is being measured.

import { html, useEffect, useRef, useState } from './vendor/htm-preact.js';
import { timeOfDay } from './format.js';

const HEIGHT = 132;
const EDGE = { top: 8, right: 8, bottom: 20, left: 46 };
/** A line is not drawn across a gap longer than this: nobody measured. */
const GAP_MS = 45_000;
export const COLOURS = 8;

/** The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below. */
export function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

const MINUTE_MS = 60_000;
const TIMES_MS = [10, 30, 60, 120, 360, 720, 1_440].map((minutes) => minutes * MINUTE_MS);

/** The same for times: minutes and hours are not counted in tens. */
export function timeCeiling(ms) {
  if (ms <= 10_000) return niceCeiling(ms);
  const steps = [20_000, 30_000, MINUTE_MS, 2 * MINUTE_MS, 4 * MINUTE_MS, ...TIMES_MS];
  return steps.find((step) => step >= ms) ?? niceCeiling(ms / (24 * 60 * MINUTE_MS)) * 24 * 60 * MINUTE_MS;
}

/** `series` are `{name, colour, points: [[ms, value|null]]}`; `format` writes a value. */
export function Chart({ title, unit, series, from, to, format, ceiling = niceCeiling, cursor, onCursor }) {
  const [width, setWidth] = useState(0);
  const frame = useRef(null);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);

  const values = series.flatMap((one) => one.points.map(([, value]) => value)).filter((value) => value !== null);
  const top = ceiling(Math.max(0, ...values));
  const plot = { width: Math.max(0, width - EDGE.left - EDGE.right), height: HEIGHT - EDGE.top - EDGE.bottom };
  const x = (at) => EDGE.left + ((at - from) / (to - from)) * plot.width;
  const y = (value) => EDGE.top + (1 - value / top) * plot.height;
  const times = series.length ? longest(series).points.map(([at]) => at) : [];

  const point = (event) => {
    const box = frame.current.getBoundingClientRect();
    const at = from + ((event.clientX - box.left - EDGE.left) / plot.width) * (to - from);
    onCursor(nearest(times, at));
  };
  const key = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !times.length) return;
    event.preventDefault();
    const index = cursor === null ? times.length : times.indexOf(nearest(times, cursor));
    onCursor(times[Math.min(times.length - 1, Math.max(0, index + step))]);
  };
  return html`<figure class="chart">
    <figcaption><span class="chart-title">${title}</span><span class="muted">${unit}</span></figcaption>
    <div class="plot" ref=${frame} tabindex="0" role="img" aria-label=${summary(title, series, format)}
      onPointerMove=${point} onPointerLeave=${() => onCursor(null)} onKeyDown=${key} onBlur=${() => onCursor(null)}>
      ${
        width > 0 &&
        html`<svg width=${width} height=${HEIGHT} aria-hidden="true">
        <${Grid} ...${{ top, x, y, from, to, width, format }} />
        ${series.map((one) => html`<path key=${one.name} class=${`line colour-${one.colour}`} d=${outline(one.points, x, y)} />`)}
        ${cursor !== null && cursor >= from && html`<line class="cross" x1=${x(cursor)} x2=${x(cursor)} y1=${EDGE.top} y2=${HEIGHT - EDGE.bottom} />`}
      </svg>`
      }
      ${width > 0 && cursor !== null && cursor >= from && html`<${Reading} ...${{ series, cursor, format, x, width }} />`}
    </div>
  </figure>`;
}

const longest = (series) =>
  series.reduce((best, one) => (one.points.length > best.points.length ? one : best), series[0]);

function nearest(times, at) {
  return times.reduce((best, time) => (Math.abs(time - at) < Math.abs(best - at) ? time : best), times[0] ?? at);
}

function outline(points, x, y) {
  let path = '';
  let before = null;
  for (const [at, value] of points) {
    if (value === null) {
      before = null;
      continue;
    }
    path += `${before !== null && at - before <= GAP_MS ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    before = at;
  }
  return path;
}

function Grid({ top, x, y, from, to, width, format }) {
  const quarter = 15 * 60_000;
  const marks = [];
  for (let at = Math.ceil(from / quarter) * quarter; at < to; at += quarter) marks.push(at);
  return html`<g class="grid">
    ${[0, 0.5, 1].map(
      (part) => html`<g key=${part}>
      <line x1=${EDGE.left} x2=${width - EDGE.right} y1=${y(top * part)} y2=${y(top * part)} />
      <text x=${EDGE.left - 6} y=${y(top * part) + 4} text-anchor="end">${format(top * part)}</text>
    </g>`,
    )}
    ${marks.map((at) => html`<text key=${at} x=${x(at)} y=${HEIGHT - 4} text-anchor=${x(at) > width - 24 ? 'end' : 'middle'}>${timeOfDay(at)}</text>`)}
  </g>`;
}

function Reading({ series, cursor, format, x, width }) {
  const left = x(cursor) > width / 2;
  const place = left ? { right: `${width - x(cursor) + 8}px` } : { left: `${x(cursor) + 8}px` };
  return html`<div class="reading" style=${place}>
    <p class="muted">${timeOfDay(cursor)}</p>
    ${series.map(
      (one) => html`<p key=${one.name}><span class=${`chip colour-${one.colour}`}></span>
      <span class="reading-name">${one.name}</span> <strong>${said(one, cursor, format)}</strong></p>`,
    )}
  </div>`;
}

function said(one, cursor, format) {
  const found = one.points.find(([at]) => at === cursor);
  return found && found[1] !== null ? format(found[1]) : '–';
}

function summary(title, series, format) {
  const last = series.map((one) => {
    const known = one.points.findLast(([, value]) => value !== null);
    return `${one.name} ${known ? format(known[1]) : 'nothing'}`;
  });
  return `${title}, last value: ${last.join(', ') || 'nothing measured'}. Arrow keys read earlier values.`;
}
