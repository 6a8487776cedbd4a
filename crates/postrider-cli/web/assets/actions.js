// What an operator can do, as questions for the confirmation dialog: each says what it does, counts first where many
// may be meant, and tells afterwards what was done. Called by the views through `ask`. Nothing here draws.

import { post } from './api.js';
import { plural } from './format.js';

const letters = (amount) => plural(amount, 'dead letter');
const deliveries = (amount) => plural(amount, 'delivery', 'deliveries');
/** One request takes only so many. */
const left = (remaining) => (remaining ? `, ${plural(remaining, 'is', 'are')} left: ask again` : '');

/** A filter of the dead letters' listing, as the API wants it in a body: without what is empty. */
export function deadFilter(query, messageIds) {
  const names = ['sink', 'namespace', 'topic', 'tenant_id', 'lane', 'reason', 'error_code', 'died_from', 'died_to'];
  const filter = Object.fromEntries(names.filter((name) => query[name]).map((name) => [name, query[name]]));
  if (messageIds) filter.message_ids = messageIds;
  return filter;
}

/** The same of the messages' listing, for what is pending. */
export function deliveryFilter(query) {
  const names = ['sink', 'namespace', 'topic', 'tenant_id', 'lane'];
  return Object.fromEntries(names.filter((name) => query[name]).map((name) => [name, query[name]]));
}

/** First how many, then the action for just those: what dies while somebody reads the question is not meant. */
function counted(path, filter, past) {
  let bound = {};
  return {
    prepare: async () => {
      const answer = await post(path, { filter, dry_run: true });
      bound = { died_to: answer.died_to };
      return answer;
    },
    run: async () => {
      const { affected, remaining } = await post(path, { filter: { ...filter, ...bound }, dry_run: false });
      return `${letters(affected)} ${past}${left(remaining)}.`;
    },
  };
}

export function redrive(filter, what) {
  return {
    title: `Redrive ${what}?`,
    says: 'Each is tried again with all its attempts, oldest first. A lane that waited for one goes on when it is delivered.',
    action: (amount) => (amount === undefined ? 'Redrive' : `Redrive ${letters(amount)}`),
    counts: ['dead letter matches', 'dead letters match'],
    ...counted('/api/v1/dead-letters/redrive', filter, 'redriven'),
  };
}

export function discard(filter, what) {
  return {
    title: `Discard ${what}?`,
    says: 'A discarded delivery is gone: it cannot be redriven. A lane that waited for one goes on without it. The message and its attempts stay in the history.',
    danger: true,
    typed: true,
    action: (amount) => (amount === undefined ? 'Discard' : `Discard ${letters(amount)}`),
    counts: ['dead letter matches', 'dead letters match'],
    ...counted('/api/v1/dead-letters/discard', filter, 'discarded'),
  };
}

export function skip({ sink, lane, depth }) {
  return {
    title: `Skip the head of lane ${lane}?`,
    says: [
      `The lane goes on for ${sink} without its dead head: ${depth > 1 ? `${plural(depth - 1, 'delivery', 'deliveries')} behind it ${depth === 2 ? 'becomes' : 'become'} due` : 'nothing waits behind it'}.`,
      'The receiver will see a number missing. The head stays a dead letter, and may be redriven later, out of order.',
    ],
    danger: true,
    action: () => 'Skip the head',
    run: async () => {
      await post('/api/v1/lanes/skip', { sink, lane });
      return `Lane ${lane} goes on for ${sink}.`;
    },
  };
}

export function pause({ sink }) {
  return {
    title: `Pause ${sink}?`,
    says: 'Its messages wait from now on, whichever relay would deliver them and whoever restarts. What is under way is finished. Producers notice nothing.',
    action: () => 'Pause',
    run: async () => {
      await post(`/api/v1/sinks/${encodeURIComponent(sink)}/pause`);
      return `${sink} is paused.`;
    },
  };
}

export function resume({ sink, pending }) {
  return {
    title: `Resume ${sink}?`,
    says: `Its messages go on: ${plural(pending, 'delivery waits', 'deliveries wait')}. They go out as fast as the sink takes them, or as its rate allows.`,
    action: () => 'Resume',
    run: async () => {
      await post(`/api/v1/sinks/${encodeURIComponent(sink)}/resume`);
      return `${sink} goes on.`;
    },
  };
}

/** Counts and acts on pending deliveries; what a worker holds is left alone, and that is told. */
function onDeliveries(path, filter, past) {
  return {
    prepare: () => post(path, { filter, dry_run: true }),
    run: async () => {
      const { affected, remaining, leased } = await post(path, { filter, dry_run: false });
      const held = leased ? `, ${plural(leased, 'is', 'are')} held by workers and left alone` : '';
      return `${deliveries(affected)} ${past}${held}${left(remaining)}.`;
    },
  };
}

export function cancel(filter, what) {
  return {
    title: `Cancel ${what}?`,
    says: 'A cancelled delivery is never handed out. Its lane goes on without it. The message stays in the history, with who cancelled it. What a worker holds is left alone.',
    danger: true,
    typed: true,
    action: (amount) => (amount === undefined ? 'Cancel deliveries' : `Cancel ${deliveries(amount)}`),
    counts: ['pending delivery matches', 'pending deliveries match'],
    ...onDeliveries('/api/v1/cancel', filter, 'cancelled'),
  };
}

export function retryNow(filter, what) {
  return {
    title: `Retry ${what} now?`,
    says: 'What waits for a retry, or was scheduled for later, becomes due at once. Attempts that were made still count. A lane keeps its order.',
    action: (amount) => (amount === undefined ? 'Retry now' : `Retry ${deliveries(amount)}`),
    counts: ['delivery waits for its time', 'deliveries wait for their time'],
    ...onDeliveries('/api/v1/retry-now', filter, 'made due'),
  };
}

export function replay(message, sink) {
  const body = { sink, message_ids: [message.message_id] };
  return {
    title: `Replay to ${sink}?`,
    says: 'What was delivered is delivered again: the receiver sees it a second time, under the same id.',
    danger: true,
    counts: ['message matches', 'messages match'],
    action: (amount) => (amount === undefined ? 'Replay' : `Replay ${plural(amount, 'message')}`),
    prepare: () => post('/api/v1/replay', { ...body, dry_run: true }),
    run: async () => {
      const { affected } = await post('/api/v1/replay', { ...body, dry_run: false });
      return `${plural(affected, 'message')} will be delivered to ${sink} again.`;
    },
  };
}
