// Shows what a message carries: JSON set in lines, or bytes as text or hexadecimal, cut when it is long. Called by the
// message view. The content is hostile: it becomes text nodes and nothing else.

import { html, useMemo, useState } from './vendor/htm-preact.js';
import { bytes } from './format.js';
import { Copy } from './parts.js';

/** A screen or two; more is drawn when asked for. */
const SHOWN_CHARACTERS = 4_000;

export function Payload({ payload, body, contentType }) {
  const [whole, setWhole] = useState(false);
  const { text, size, kind } = useMemo(() => read(payload, body), [payload, body]);
  if (text === null) return html`<p class="nothing">It carries nothing.</p>`;
  const long = text.length > SHOWN_CHARACTERS;
  return html`<div class="payload">
    <p class="payload-head muted"><span>${[contentType, kind, bytes(size)].filter(Boolean).join(' · ')}</span><${Copy} text=${text} label="the payload" /></p>
    <pre tabindex="0" aria-label="Payload">${long && !whole ? text.slice(0, SHOWN_CHARACTERS) : text}</pre>
    ${long && html`<button type="button" onClick=${() => setWhole(!whole)}>${whole ? 'Show less' : `Show all ${bytes(size)}`}</button>`}
  </div>`;
}

function read(payload, body) {
  if (payload !== null && payload !== undefined) {
    return {
      text: JSON.stringify(payload, null, 2),
      size: new TextEncoder().encode(JSON.stringify(payload)).length,
      kind: 'JSON',
    };
  }
  if (!body) return { text: null, size: 0, kind: '' };
  const raw = Uint8Array.from(atob(body), (character) => character.charCodeAt(0));
  try {
    return { text: new TextDecoder('utf-8', { fatal: true }).decode(raw), size: raw.length, kind: 'text' };
  } catch {
    return { text: hexadecimal(raw), size: raw.length, kind: 'bytes' };
  }
}

/** Sixteen bytes a line, as hexdump does. */
export function hexadecimal(raw) {
  const lines = [];
  for (let at = 0; at < raw.length; at += 16) {
    const part = [...raw.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '.')).join('');
    lines.push(`${at.toString(16).padStart(8, '0')}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join('\n');
}
