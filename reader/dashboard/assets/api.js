// Requests to the reader and the producer. Error responses, timeouts and network failures are ApiErrors, whose
// message the page shows.

/** Request timeout in ms: above the servers' default limits, so that their errors arrive first. */
const patience = 15_000;

export class ApiError extends Error {
  /** @param {object|null} problem the body (RFC 9457); null: no response */
  constructor(message, problem, status = 0) {
    super(message);
    this.problem = problem;
    this.status = status;
  }

  /** is compares the last part of the problem type. */
  is(word) {
    return this.problem?.type === `urn:kudos:problem:${word}`;
  }
}

export function get(path, query = {}, { signal, timeout = patience } = {}) {
  return ask(address(path, query), { signal }, timeout, 'The reader cannot be reached.');
}

/** address appends a query to a path, without undefined and empty values. */
export function address(path, query = {}) {
  const text = Object.entries(query).filter(([, value]) => value !== undefined && value !== '')
    .map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join('&');
  return text ? `${path}?${text}` : path;
}

const requests = {
  LIKE: { method: 'PUT', what: 'likes' },
  DISLIKE: { method: 'PUT', what: 'dislikes' },
  NONE: { method: 'DELETE', what: 'likes' },
};

export function reactionRequest(post, user, wanted) {
  const { method, what } = requests[wanted];
  return { method, path: `/v1/posts/${post}/${what}/${user}` };
}

/** react sends a reaction to the producer and returns the event's partition and offset. */
export function react(producer, post, user, wanted, timeMs) {
  const { method, path } = reactionRequest(post, user, wanted);
  const unreachable = `The producer at ${producer} cannot be reached, or does not accept requests from this page: `
    + `add ${location.origin} to producer.origins.`;
  return ask(address(producer.replace(/\/+$/, '') + path, { time_ms: timeMs }), { method }, patience, unreachable);
}

async function ask(url, { method = 'GET', signal }, timeout, unreachable) {
  const bound = AbortSignal.timeout(timeout);
  const tooLate = () => new ApiError(`No response within ${timeout / 1000} s.`, null);
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
  throw new ApiError(body?.detail || body?.title || `The response was ${response.status} ${response.statusText}`.trim(), body ?? {}, response.status);
}
