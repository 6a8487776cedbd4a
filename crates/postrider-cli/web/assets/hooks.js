// How views get their data: once, or again and again while somebody looks. A request is never sent while the one before
// it is under way, a hidden tab asks nothing, and what was shown stays while newer data is fetched.

import { createContext, useCallback, useContext, useEffect, useRef, useState } from './vendor/htm-preact.js';

/** How often a live view asks again. */
export const REFRESH_MS = 5_000;

/** What every view shares: see shell.js. */
export const Session = createContext(null);
export const useSession = () => useContext(Session);

/**
 * Loads with `load(signal)`, again when `key` changes, when `reload` is called, after signing in, and every `everyMs` if
 * given. Data of another key is never shown.
 */
export function useData(load, key, everyMs = 0) {
  const session = useContext(Session);
  const generation = session?.generation ?? 0;
  const [state, setState] = useState({ key, data: null, error: null });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;

  useEffect(() => {
    const control = new AbortController();
    let timer = 0;
    let busy = false;
    const once = async () => {
      if (busy || (everyMs && document.hidden)) return;
      busy = true;
      clearTimeout(timer);
      try {
        const data = await latest.current(control.signal);
        if (!control.signal.aborted) setState({ key, data, error: null });
      } catch (error) {
        if (!control.signal.aborted) setState((old) => ({ key, data: old.key === key ? old.data : null, error }));
      }
      busy = false;
      if (everyMs && !control.signal.aborted) timer = setTimeout(once, everyMs);
    };
    const seen = () => document.hidden || once();
    once();
    if (everyMs) document.addEventListener('visibilitychange', seen);
    return () => {
      control.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
    };
  }, [key, everyMs, turn, generation]);

  const reload = useCallback(() => setTurn((value) => value + 1), []);
  const current = state.key === key;
  return {
    data: current ? state.data : null,
    error: current ? state.error : null,
    loading: !current || (!state.data && !state.error),
    reload,
  };
}

/** Draws again now and then, so that `3 s ago` does not stay so. */
export function useTick(everyMs = REFRESH_MS) {
  const [, setTurn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((value) => value + 1), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
}

export function useTitle(title) {
  useEffect(() => {
    document.title = `${title} · Postrider`;
  }, [title]);
}
