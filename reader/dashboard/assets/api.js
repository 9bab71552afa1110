// The reader's API and the producer's, over fetch. An answer that is no success, or none
// at all, is an ApiError whose message a person can read.

/** How long an answer may take before it counts as none, in ms: longer than the servers' own bounds. */
const patience = 15_000;

export class ApiError extends Error {
  /** @param {object|null} problem the body (RFC 9457); null: nothing was answered */
  constructor(message, problem, status = 0) {
    super(message);
    this.problem = problem;
    this.status = status;
  }

  /** is tells one problem from another: the last word of its type. */
  is(word) {
    return this.problem?.type === `urn:kudos:problem:${word}`;
  }
}

/** get asks the reader. */
export function get(path, query = {}, { signal, timeout = patience } = {}) {
  return ask(address(path, query), { signal }, timeout, 'The reader cannot be reached.');
}

/** address of a path with a query, without what is undefined. Commas and colons stay readable. */
export function address(path, query = {}) {
  const text = Object.entries(query).filter(([, value]) => value !== undefined && value !== '')
    .map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join('&');
  return text ? `${path}?${text}` : path;
}

/** Of each reaction that a user may want: the request that says so. */
const requests = {
  LIKE: { method: 'PUT', what: 'likes' },
  DISLIKE: { method: 'PUT', what: 'dislikes' },
  NONE: { method: 'DELETE', what: 'likes' },
};

/** reactionRequest is method and path of what is sent to the producer. */
export function reactionRequest(post, user, wanted) {
  const { method, what } = requests[wanted];
  return { method, path: `/v1/posts/${post}/${what}/${user}` };
}

/** react tells the producer what a user wants, and returns the event's place in Kafka. */
export function react(producer, post, user, wanted, timeMs) {
  const { method, path } = reactionRequest(post, user, wanted);
  const unreachable = `The producer at ${producer} cannot be reached, or does not take likes from this page: `
    + `${location.origin} must be listed in its setting producer.origins.`;
  return ask(address(producer.replace(/\/+$/, '') + path, { time_ms: timeMs }), { method }, patience, unreachable);
}

async function ask(url, { method = 'GET', signal }, timeout, unreachable) {
  const bound = AbortSignal.timeout(timeout);
  const tooLate = () => new ApiError(`No answer within ${timeout / 1000} s.`, null);
  let response;
  try {
    response = await fetch(url, { method, cache: 'no-store', credentials: 'omit', signal: signal ? AbortSignal.any([signal, bound]) : bound });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw bound.aborted ? tooLate() : new ApiError(unreachable, null);
  }
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (bound.aborted) throw tooLate();
  }
  if (response.ok && body !== null) return body;
  throw new ApiError(body?.detail || body?.title || `The answer was ${response.status} ${response.statusText}`.trim(), body ?? {}, response.status);
}
