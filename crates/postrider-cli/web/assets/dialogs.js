// The questions that are asked before something is changed, the sign-in, and the help. All are native <dialog> elements:
// the browser keeps the focus inside, closes on Escape and gives the focus back. Called by the shell alone.

import { html, useEffect, useLayoutEffect, useRef, useState } from './vendor/htm-preact.js';
import { count } from './format.js';
import { Problem } from './parts.js';

function Modal({ title, onClose, children, wide }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    element.current.showModal();
    return () => element.current?.close();
  }, []);
  return html`<dialog ref=${element} class=${wide ? 'wide' : ''} aria-labelledby="dialog-title" onCancel=${(event) => {
    event.preventDefault();
    onClose();
  }}>
    <h2 id="dialog-title">${title}</h2>
    ${children}
  </dialog>`;
}

/**
 * Asks before an action. `prepare` counts first what the action would take (a dry run); `typed` makes the reader type
 * that number; `run` acts and returns what to tell.
 */
export function Confirm({ question, onClose, onDone }) {
  const { title, says, danger, action, counts, typed, prepare, run } = question;
  const [counted, setCounted] = useState(prepare ? null : { matching: 1 });
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [text, setText] = useState('');

  useEffect(() => {
    prepare?.().then(setCounted, setError);
  }, []);
  // The field comes with the count, when the dialog has long had its first focus.
  const field = useRef(null);
  useEffect(() => field.current?.focus(), [counted]);
  const nothing = counted && counted.matching === 0;
  const agreed = counted && !nothing && (!typed || text.trim().replaceAll(',', '') === String(counted.matching));
  const submit = async (event) => {
    event.preventDefault();
    if (!agreed || busy) return;
    setBusy(true);
    setError(null);
    try {
      onDone(await run());
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  };
  return html`<${Modal} title=${title} onClose=${onClose}>
    <form method="dialog" onSubmit=${submit}>
      ${[].concat(says).map((line) => html`<p key=${line}>${line}</p>`)}
      ${prepare && html`<${Counted} counts=${counts} counted=${counted} waiting=${!counted && !error} danger=${danger} />`}
      ${
        typed &&
        counted &&
        !nothing &&
        html`<label class="field"><span>Type <strong>${counted.matching}</strong> to confirm</span>
        <input type="text" inputmode="numeric" name="typed" autocomplete="off" ref=${field} value=${text}
          onInput=${(event) => setText(event.currentTarget.value)} /></label>`
      }
      <${Problem} error=${error} />
      <div class="dialog-buttons">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class=${danger ? 'danger solid' : 'primary'} disabled=${!agreed || busy}>
          ${busy ? 'Working…' : action(counted?.matching)}</button>
      </div>
    </form>
  <//>`;
}

function Counted({ counts, counted, waiting, danger }) {
  if (waiting) return html`<p class="counted muted" role="status">Counting what this would take…</p>`;
  if (!counted) return null;
  return html`<p class=${`counted ${danger ? 'bad' : 'info'}`} role="status"><strong>${count(counted.matching)}</strong> ${counts[counted.matching === 1 ? 0 : 1]}</p>`;
}

/** Asks for a token. What it may do is known after the next answer of the server. */
export function SignIn({ why, onClose, onToken }) {
  const [value, setValue] = useState('');
  const submit = (event) => {
    event.preventDefault();
    if (value.trim()) onToken(value.trim());
  };
  return html`<${Modal} title="Sign in" onClose=${onClose}>
    <form method="dialog" onSubmit=${submit}>
      ${why && html`<p class="note">${why}</p>`}
      <label class="field"><span>Token</span>
        <input type="password" name="token" required autofocus autocomplete="off" value=${value}
          onInput=${(event) => setValue(event.currentTarget.value)} /></label>
      <p class="muted">It is the server's POSTRIDER_ADMIN_TOKEN, or one of its [admin] tokens. This tab keeps it until it is closed.</p>
      <div class="dialog-buttons">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary">Sign in</button>
      </div>
    </form>
  <//>`;
}

export function Help({ shortcuts, onClose }) {
  return html`<${Modal} title="Keyboard" onClose=${onClose} wide>
    <dl class="shortcuts">
      ${shortcuts.map(
        ([keys, what]) => html`<div key=${keys}>
        <dt>${keys.split(' ').map((key) => html`<kbd key=${key}>${key}</kbd> `)}</dt><dd>${what}</dd></div>`,
      )}
    </dl>
    <div class="dialog-buttons"><button type="button" class="primary" autofocus onClick=${onClose}>Close</button></div>
  <//>`;
}
