// Where in the page the reader is: `#/messages?state=dead` is the path `['messages']` and the query `{state: 'dead'}`.
// Called by the shell, and by every view that makes a link. The part before `#` stays as it is: it names the database.

import { useEffect, useState } from './vendor/htm-preact.js';

export function parseRoute(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  return {
    path: path.split('/').filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A link to a place, without parameters that are empty. */
export function link(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const text = new URLSearchParams(given).toString();
  const place = [].concat(path).map(encodeURIComponent).join('/');
  return `#/${place}${text ? `?${text}` : ''}`;
}

export function go(path, query) {
  location.hash = link(path, query);
}

export function useRoute() {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseRoute(location.hash));
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route;
}
