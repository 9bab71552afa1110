// Like, dislike, withdraw: sends reactions to the producer, and shows each one's progress until this reader counts it.

import { ApiError, get, react, reactionRequest } from './api.js';
import { announce, byId, element, setText } from './dom.js';
import { duration, idHint, parseId } from './format.js';

const userKey = 'kudos.user';
/** Attempts to read an event that this reader has not applied yet; each may take several seconds. */
const patience = 12;
const standings = { LIKE: 'likes this post', DISLIKE: 'dislikes this post', NONE: 'has no reaction to this post' };

export class Reactions {
  #producer;
  #post; // the Post that shows the counts
  #id = '';
  #user = '';
  #standing = null; // current reaction; null: unknown
  #turn = new AbortController(); // aborts requests for another post or user
  #busy = false;
  #repeat = null; // { wanted, timeMs } of the last failure

  constructor(producer, post) {
    this.#producer = producer;
    this.#post = post;
    byId('no-producer').hidden = Boolean(producer);
    byId('reactions').hidden = !producer;
    setText(byId('own-origin'), location.origin);
    if (!producer) return;
    this.#setUser(remembered() ?? randomUser());
    byId('reactions').addEventListener('submit', (event) => event.preventDefault());
    byId('user-input').addEventListener('change', (event) => this.#changeUser(event.target.value));
    // On input, not on blur: clearing the error moves the button that the user is about to click.
    byId('user-input').addEventListener('input', (event) => parseId(event.target.value) && this.#judge(true));
    byId('user-random').addEventListener('click', () => this.#changeUser(randomUser()));
    for (const [button, wanted] of [['like', 'LIKE'], ['dislike', 'DISLIKE'], ['withdraw', 'NONE']]) {
      byId(button).addEventListener('click', () => this.#send(wanted));
    }
    byId('repeat').addEventListener('click', () => this.#send(this.#repeat.wanted, this.#repeat.timeMs));
  }

  open(id) {
    this.#id = id;
    if (this.#producer) this.#reset();
  }

  #changeUser(text) {
    const user = parseId(text);
    this.#judge(Boolean(user));
    if (!user || user === this.#user) return;
    this.#setUser(user);
    this.#reset();
  }

  /** validate the user id field. */
  #judge(valid) {
    setText(byId('user-error'), valid ? '' : idHint);
    byId('user-input').setAttribute('aria-invalid', String(!valid));
  }

  #setUser(user) {
    this.#user = user;
    byId('user-input').value = user;
    try {
      localStorage.setItem(userKey, user);
    } catch {
      // Storage may be blocked: the next visit gets another user.
    }
  }

  #reset() {
    this.#turn.abort();
    this.#turn = new AbortController();
    this.#setBusy(false);
    this.#fail('');
    byId('journey').hidden = true;
    this.#stands(null);
    this.#readStanding(this.#turn.signal).catch((error) => this.#explain(error, 'The current reaction is unknown: '));
  }

  /** readStanding shows the current reaction. With partition:offset, the reader waits until it covers that event. */
  async #readStanding(signal, event) {
    try {
      const { reaction } = await get(`/v1/posts/${this.#id}/likes/${this.#user}`, { min_offset: event }, { signal });
      this.#stands(reaction);
    } catch (error) {
      // Not a failure: the reader keeps counts only.
      if (error instanceof ApiError && error.status === 404) return setText(byId('standing'), error.message);
      throw error;
    }
  }

  #stands(reaction) {
    this.#standing = reaction;
    byId('like').setAttribute('aria-pressed', String(reaction === 'LIKE'));
    byId('dislike').setAttribute('aria-pressed', String(reaction === 'DISLIKE'));
    setText(byId('standing'), reaction ? `This user ${standings[reaction]}.` : '');
  }

  async #send(wanted, timeMs) {
    if (this.#busy) return;
    // #user is still the previous one, not the one in the field.
    if (byId('user-input').getAttribute('aria-invalid') === 'true') return byId('user-input').focus();
    this.#setBusy(true);
    this.#fail('');
    const { signal } = this.#turn;
    const [before, clicked] = [this.#standing, performance.now()];
    const { method, path } = reactionRequest(this.#id, this.#user, wanted);
    this.#step('sent', 'done', `${method} ${path}`);
    this.#step('kafka', 'waiting', '');
    this.#step('counted', 'waiting', '');
    byId('journey').hidden = false;
    try {
      const place = await react(this.#producer, this.#id, this.#user, wanted, timeMs);
      if (signal.aborted) return;
      const known = place.offset >= 0; // rarely Kafka acknowledges without an offset
      const where = known ? `partition ${place.partition}, offset ${place.offset} · ` : '';
      this.#step('kafka', 'done', `${where}${duration(performance.now() - clicked)}`);
      const counted = await this.#counted(place, signal);
      if (signal.aborted) return;
      const nothingNew = before === wanted ? ' Nothing changed: the user already had this reaction.' : '';
      const took = element('strong', {}, duration(counted - clicked));
      this.#step('counted', 'done', ...(known ? [took, ' after the click.'] : ['soon.']), nothingNew);
      announce(`Counted after ${duration(counted - clicked)}. ${byId('standing').textContent}${nothingNew}`);
    } catch (error) {
      if (!signal.aborted) this.#explain(error, '', wanted);
    } finally {
      if (!signal.aborted) this.#setBusy(false);
    }
  }

  /** counted waits until the page shows the event and returns that time (performance.now). */
  async #counted(place, signal) {
    const event = place.offset >= 0 ? `${place.partition}:${place.offset}` : undefined;
    const shown = event ? this.#post.covers(place) : performance.now();
    for (let attempt = 1; ; attempt++) {
      try {
        // The stream sends changes only, and this event may not change anything.
        await Promise.all([
          get(`/v1/posts/${this.#id}/likes`, { min_offset: event }, { signal })
            .then((counts) => this.#post.take(counts, undefined, event && place)),
          this.#readStanding(signal, event),
        ]);
        return await shown;
      } catch (error) {
        if (!(error instanceof ApiError) || !behind(error) || attempt === patience) throw error;
        this.#step('counted', 'waiting', 'not yet: this reader is behind');
        if (!error.is('not-covered')) await pause(1_000, signal);
      }
    }
  }

  #step(name, state, ...text) {
    const step = byId(`step-${name}`);
    step.dataset.state = state;
    step.querySelector('.step-text').replaceChildren(...text);
  }

  /** explain shows an error; wanted is the reaction if sending it failed. */
  #explain(error, before, wanted) {
    if (error.name === 'AbortError') return;
    if (!(error instanceof ApiError)) throw error;
    for (const name of ['kafka', 'counted']) if (byId(`step-${name}`).dataset.state === 'waiting') this.#step(name, 'failed', 'unknown');
    // With its original time, a late retry cannot override a newer reaction.
    this.#repeat = wanted && { wanted, timeMs: error.problem?.time_ms };
    this.#fail(`${before}${error.message}`);
    byId('repeat').hidden = !error.is('not-acknowledged');
  }

  #fail(text) {
    setText(byId('reaction-error'), text);
    byId('repeat').hidden = true;
  }

  /** setBusy uses aria-disabled because a disabled button loses the focus. */
  #setBusy(busy) {
    this.#busy = busy;
    for (const name of ['like', 'dislike', 'withdraw']) byId(name).setAttribute('aria-disabled', String(busy));
  }
}

/** behind reports errors worth a retry: the reader is starting, catching up or overloaded. */
const behind = (error) => error.problem === null || error.status === 503 || error.status === 429;

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

function remembered() {
  try {
    return parseId(localStorage.getItem(userKey) ?? '');
  } catch {
    return null;
  }
}

/** randomUser is between 2^40 and 2^41, to avoid the ids of real users. */
function randomUser() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return ((1n << 40n) + (BigInt(high & 0xff) << 32n) + BigInt(low)).toString();
}
