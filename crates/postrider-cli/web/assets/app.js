// The page's entry: chooses the view that the address names and draws it inside the shell. Loaded by index.html. A view
// that throws is told as an error instead of leaving an empty page.

import { html, render, useEffect, useErrorBoundary, useRef } from './vendor/htm-preact.js';
import { Problem } from './parts.js';
import { useRoute } from './router.js';
import { Shell } from './shell.js';
import { Api } from './views/api.js';
import { Audit } from './views/audit.js';
import { DeadLetters } from './views/dead-letters.js';
import { Lanes } from './views/lanes.js';
import { MessageView } from './views/message.js';
import { Messages } from './views/messages.js';
import { Overview } from './views/overview.js';
import { Sinks } from './views/sinks.js';

const VIEWS = {
  overview: Overview,
  sinks: Sinks,
  lanes: Lanes,
  'dead-letters': DeadLetters,
  messages: Messages,
  audit: Audit,
  api: Api,
};

function choose({ path }) {
  if (path[0] === 'messages' && path[1]) return MessageView;
  return VIEWS[path[0] || 'overview'] || Unknown;
}

function Unknown() {
  return html`<h1>There is no such view</h1><p>Choose one on the left, or go to the <a href="#/">overview</a>.</p>`;
}

function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((caught) => console.error(caught));
  if (!error) return children;
  return html`<${Problem} error=${{ message: error.message, code: 'PAGE', hint: 'This is a fault of the page, not of the outbox.' }} retry=${reset} />`;
}

function App() {
  const route = useRoute();
  const View = choose(route);
  const place = route.path.join('/');
  const first = useRef(true);
  useEffect(() => {
    // A screen reader starts at the new view, and so does the scroll.
    if (!first.current) document.getElementById('main').focus({ preventScroll: true });
    first.current = false;
    scrollTo(0, 0);
  }, [place]);
  return html`<${Shell} route=${route}>
    <${Guarded} key=${place}><${View} route=${route} /><//>
  <//>`;
}

const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} />`, root);
