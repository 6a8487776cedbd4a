// What surrounds every view: navigation, the database, who is signed in, the theme, short notices, dialogs, and the
// keyboard. It asks for the overview every few seconds, for every view needs to know what the reader may do. Called by
// app.js, which says which view is shown.

import { html, useCallback, useEffect, useMemo, useRef, useState } from './vendor/htm-preact.js';
import { database, get, onUnauthorized, token } from './api.js';
import { Confirm, Help, SignIn } from './dialogs.js';
import { setClock } from './format.js';
import { REFRESH_MS, Session, useData } from './hooks.js';
import { NAVIGATION, SHORTCUTS, useKeyboard } from './keyboard.js';
import { go, link } from './router.js';
import { verdict } from './verdict.js';

const NOTICE_MS = 6_000;
const UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
/** The end of an id, as listings show it: at least six digits, for a lane may be called `cafe`. */
const ID_TAIL = /^(…|\.\.\.)?[0-9a-f]{6,32}$/i;

/** Where a search leads: to a message, or to the listing filtered by what the text looks like. */
export function found(text) {
  if (UUID.test(text)) return [['messages', text.toLowerCase()]];
  if (ID_TAIL.test(text)) return ['messages', { id: text.replace(/^(…|\.+)/, '').toLowerCase() }];
  if (text.includes('*')) return ['messages', { topic: text }];
  return ['messages', { lane: text }];
}

/** What the reader may do, and if not, why. Whoever was refused may sign in, though nothing else is known. */
export function rights(overview, error) {
  if (!overview) return { operate: false, canSignIn: error?.status === 401, reason: '', role: 'none' };
  const { enabled, role } = overview.admin;
  if (!enabled) {
    return {
      operate: false,
      canSignIn: false,
      role,
      reason: 'Actions are switched off on this server: set POSTRIDER_ADMIN_TOKEN and start it again.',
    };
  }
  if (role === 'operate') return { operate: true, canSignIn: true, reason: '', role };
  if (role === 'read')
    return {
      operate: false,
      canSignIn: true,
      role,
      reason: 'Your token may only read. Actions need one with the role operate.',
    };
  return { operate: false, canSignIn: true, role, reason: 'Actions need a token with the role operate.' };
}

export function Shell({ route, children }) {
  const [generation, setGeneration] = useState(0);
  const [question, setQuestion] = useState(null);
  const [signingIn, setSigningIn] = useState(null);
  const [help, setHelp] = useState(false);
  const [notice, setNotice] = useState(null);
  const answer = useData(loadOverview, `overview ${generation}`, REFRESH_MS);
  const kept = useRef(null);
  if (answer.data) kept.current = answer.data;
  const overview = answer.data || kept.current;

  // Whoever closed the question is not asked again by every refresh.
  const declined = useRef(false);
  useEffect(
    () =>
      onUnauthorized((error) => {
        if (!declined.current)
          setSigningIn((open) => open || { why: [error.message, error.hint].filter(Boolean).join('. ') });
      }),
    [],
  );
  useEffect(() => {
    const timer = notice && setTimeout(() => setNotice(null), NOTICE_MS);
    return () => clearTimeout(timer);
  }, [notice]);
  useKeyboard({ onHelp: () => setHelp(true) });

  const may = rights(overview, answer.error);
  const ask = useCallback((asked) => setQuestion(asked), []);
  // What was clicked before somebody signed in is done afterwards, if the token may.
  const clicked = useRef(null);
  const signIn = useCallback((why, then) => {
    clicked.current = then ?? null;
    setSigningIn({ why });
  }, []);
  useEffect(() => {
    if (!answer.data || signingIn || !clicked.current) return;
    const then = clicked.current;
    clicked.current = null;
    const allowed = rights(answer.data);
    if (allowed.operate) then();
    else setNotice(allowed.reason);
  }, [answer.data, signingIn]);
  const session = useMemo(
    () => ({ overview, error: answer.error, may, ask, signIn, generation }),
    [overview, answer.error, generation],
  );
  const signed = (value) => {
    declined.current = !value;
    if (value) token.set(value);
    else token.forget();
    setSigningIn(null);
    setGeneration((turn) => turn + 1);
  };
  const declineSignIn = () => {
    declined.current = true;
    clicked.current = null;
    setSigningIn(null);
  };
  const done = (text) => {
    setQuestion(null);
    setNotice(text);
    setGeneration((turn) => turn + 1);
  };
  return html`<${Session.Provider} value=${session}>
    <a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <div class="frame">
      <${Sidebar} ...${{ route, overview, may, onHelp: () => setHelp(true), onSignIn: () => setSigningIn({}), onSignOut: () => signed(null) }} />
      <main id="main" tabindex="-1">
        ${answer.error && overview && html`<p class="stale" role="alert">${answer.error.message}: what is shown is old. ${answer.error.hint}</p>`}
        ${children}
      </main>
    </div>
    <div class="notice-place" role="status" aria-live="polite">${notice && html`<p class="notice">${notice}</p>`}</div>
    ${question && html`<${Confirm} question=${question} onClose=${() => setQuestion(null)} onDone=${done} />`}
    ${signingIn && html`<${SignIn} why=${signingIn.why} onClose=${declineSignIn} onToken=${signed} />`}
    ${help && html`<${Help} shortcuts=${SHORTCUTS} onClose=${() => setHelp(false)} />`}
  <//>`;
}

async function loadOverview(signal) {
  const overview = await get('/api/v1/overview', {}, signal);
  setClock(overview.now);
  return overview;
}

function skip(event) {
  event.preventDefault();
  document.getElementById('main').focus();
}

function Sidebar({ route, overview, may, onHelp, onSignIn, onSignOut }) {
  const [open, setOpen] = useState(false);
  const here = route.path[0] || 'overview';
  useEffect(() => setOpen(false), [route]);
  const problems = overview ? verdict(overview) : [];
  const marks = {
    overview: problems.length
      ? { text: problems.length, tone: problems[0].grave ? 'bad' : 'warn', label: 'need attention' }
      : null,
    'dead-letters': mark(overview, (sink) => sink.dead, 'dead'),
    lanes: mark(overview, (sink) => sink.parked_lanes, 'parked'),
  };
  return html`<header class="sidebar">
    <div class="brand-row">
      <a class="brand" href="#/"><img src="/assets/favicon.svg" alt="" width="22" height="22" /> Postrider</a>
      <button type="button" class="menu" aria-expanded=${open} aria-controls="menu" onClick=${() => setOpen(!open)}>Menu</button>
    </div>
    <div id="menu" class=${open ? 'menu-part open' : 'menu-part'}>
      <${Find} />
      <nav aria-label="Views"><ul>
        ${NAVIGATION.map(
          ([name, label, key]) => html`<li key=${name}>
          <a href=${name === 'overview' ? '#/' : link(name)} aria-current=${here === name ? 'page' : undefined} title=${`Keyboard: g ${key}`}>
            ${label}${marks[name] && html`<span class=${`mark ${marks[name].tone}`} aria-label=${`${marks[name].text} ${marks[name].label}`}>${marks[name].text}</span>`}</a>
        </li>`,
        )}
      </ul></nav>
      <div class="sidebar-foot">
        ${overview && html`<${Databases} overview=${overview} />`}
        <${Who} ...${{ may, onSignIn, onSignOut }} />
        <div class="foot-row"><${Theme} /><button type="button" class="plain-link" onClick=${onHelp}>Keys <kbd>?</kbd></button></div>
        ${overview && html`<p class="muted version">postrider ${overview.version}</p>`}
      </div>
    </div>
  </header>`;
}

function mark(overview, amount, label) {
  const sum = overview ? overview.sinks.reduce((total, sink) => total + amount(sink), 0) : 0;
  return sum ? { text: sum > 9_999 ? '9999+' : sum, tone: 'bad', label } : null;
}

function Find() {
  const find = (event) => {
    event.preventDefault();
    const field = event.currentTarget.elements.find;
    const text = field.value.trim();
    if (!text) return;
    go(...found(text));
    field.value = '';
  };
  return html`<form class="find" role="search" aria-label="Find" onSubmit=${find}>
    <input type="search" name="find" id="find" placeholder="Id, topic.* or lane" aria-label="Find a message by its id or the end of it, a topic with *, or a lane"
      autocomplete="off" autocapitalize="off" spellcheck=${false} /><kbd aria-hidden="true">/</kbd>
  </form>`;
}

function Databases({ overview }) {
  const { databases, store } = overview;
  const change = (event) => location.assign(`/?database=${encodeURIComponent(event.currentTarget.value)}#/`);
  return html`<div class="store">
    ${
      databases.length > 1 &&
      html`<label class="field"><span>Database</span>
      <select value=${database || overview.database} onChange=${change}>
        ${databases.map((name) => html`<option key=${name} value=${name} selected=${name === overview.database}>${name}</option>`)}
      </select></label>`
    }
    <p class="muted mono" title=${store}>${store}</p>
  </div>`;
}

function Who({ may, onSignIn, onSignOut }) {
  if (!token.get()) {
    return html`<div class="who"><span>${may.role === 'operate' ? 'May operate' : 'Not signed in'}</span> ${may.canSignIn && html`<button type="button" class="small" onClick=${onSignIn}>Sign in</button>`}</div>`;
  }
  const words = { operate: 'May operate', read: 'May read', none: 'Token not known' }[may.role];
  return html`<div class="who"><span class=${may.role === 'operate' ? 'role operate' : 'role'}>${words}</span>
    <button type="button" class="small" onClick=${onSignOut}>Sign out</button></div>`;
}

/** Follows the system, or stays light or dark. */
function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme || 'system');
  const change = (event) => {
    const chosen = event.currentTarget.value;
    setTheme(chosen);
    if (chosen === 'system') {
      localStorage.removeItem('postrider.theme');
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem('postrider.theme', chosen);
      document.documentElement.dataset.theme = chosen;
    }
  };
  return html`<label class="theme"><span class="unseen">Theme</span><select value=${theme} onChange=${change}>
    ${['system', 'light', 'dark'].map((name) => html`<option key=${name} value=${name} selected=${name === theme}>${name[0].toUpperCase() + name.slice(1)}</option>`)}
  </select></label>`;
}
