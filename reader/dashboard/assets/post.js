// A post: its live counts and the reaction form. The URL selects the post (#post=42).

import { address } from './api.js';
import { countChart } from './charts.js';
import { announce, byId, politely, reducedMotion, setText } from './dom.js';
import { counted, idHint, number, parseId, signed } from './format.js';
import { LiveStream } from './live.js';
import { Reactions } from './reactions.js';
import { linkTo, route } from './route.js';
import { pageOf, titleOf } from './titles.js';

const chartSeconds = 180;
const rateSeconds = 10; // range of the recent change

export class Post {
  #status;
  #onOpen;
  #onCounts;
  #stream = null;
  #id = '';
  #shown = null; // the counts on the page
  #epoch = ''; // topic epoch of the offsets
  #offsets = new Map(); // by partition: a post with user buckets is in several
  #waiting = []; // { partition, offset, resolve }
  #past = []; // { at, likes }: changes in the chart's range, at in s
  #chart = null;
  #say = politely(15_000);
  #reactions;

  constructor(status, { producer, onOpen, onCounts }) {
    this.#status = status;
    this.#onOpen = onOpen;
    this.#onCounts = onCounts;
    this.#reactions = new Reactions(producer, this);
    byId('post-form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#submit();
    });
    window.addEventListener('hashchange', () => {
      if (this.#follow()) this.#reveal();
    });
    setInterval(() => this.#pass(), 1_000);
  }

  start() {
    this.#follow();
  }

  /** suggest opens a post unless the user chose one. */
  suggest(id) {
    if (!this.#id && !byId('post-input').value) this.#open(id);
  }

  /** take shows counts from any response, unless they are older than those shown. They include an event, if given. */
  take(counts, epoch = this.#epoch, event = undefined) {
    if (counts.post_id !== this.#id) return;
    if (epoch !== this.#epoch) this.#offsets.clear();
    this.#epoch = epoch;
    const { partition, offset } = counts.as_of;
    if (offset >= (this.#offsets.get(partition) ?? 0)) {
      this.#offsets.set(partition, offset);
      const before = this.#shown;
      this.#shown = counts;
      this.#onCounts(counts);
      this.#draw(before);
    }
    const covered = (at) => at.offset < (this.#offsets.get(at.partition) ?? 0)
      || (at.partition === event?.partition && at.offset <= event.offset);
    for (const { resolve } of this.#waiting.filter(covered)) resolve(performance.now());
    this.#waiting = this.#waiting.filter((at) => !covered(at));
  }

  /** covers resolves with the time (performance.now) at which the counts shown include the event at offset. */
  covers({ partition, offset }) {
    if ((this.#offsets.get(partition) ?? 0) > offset) return Promise.resolve(performance.now());
    return new Promise((resolve) => this.#waiting.push({ partition, offset, resolve }));
  }

  #submit() {
    const id = parseId(byId('post-input').value);
    setText(byId('post-error'), id ? '' : idHint);
    byId('post-input').setAttribute('aria-invalid', String(!id));
    if (!id) return;
    location.hash = linkTo({ post: id, compare: '' });
    if (id !== this.#id) this.#open(id); // same URL: no hashchange event
  }

  /** follow the URL; true if that opened another post. */
  #follow() {
    const { post } = route();
    if (post === undefined) return false;
    const id = parseId(post);
    setText(byId('post-error'), id ? '' : `The URL asks for post “${post.slice(0, 40)}”. ${idHint}`);
    if (!id || id === this.#id) return false;
    this.#open(id);
    return true;
  }

  /** reveal scrolls to the post if its title is out of view. */
  #reveal() {
    const { top, bottom } = byId('post-title').getBoundingClientRect();
    if (top < 0 || bottom > innerHeight) byId('post-title').scrollIntoView({ behavior: reducedMotion() ? 'auto' : 'smooth' });
    byId('post-title').focus({ preventScroll: true });
    announce(`Post ${this.#id} is shown.`);
  }

  #open(id) {
    this.#stream?.close();
    this.#id = id;
    this.#shown = null;
    this.#epoch = '';
    this.#offsets.clear();
    this.#waiting = [];
    this.#past = [];
    byId('post-body').hidden = false;
    byId('post-input').value = id;
    byId('post-input').setAttribute('aria-invalid', 'false');
    setText(byId('post-id'), id);
    this.#name(id);
    setText(byId('post-likes'), '–');
    setText(byId('post-dislikes'), '–');
    setText(byId('post-source'), `GET ${address('/v1/stream', { post_ids: id })}`);
    this.#note();
    this.#onOpen(id);
    this.#reactions.open(id);
    this.#stream = new LiveStream({ post_ids: id }, 'likes',
      (counts, eventId) => this.take(counts, eventId.split('.')[0]), (state) => this.#status.set('post', state));
  }

  /** name shows the post's title, and links to its page. */
  async #name(id) {
    const page = pageOf(id);
    byId('post-link').hidden = !page;
    if (page) byId('post-link').href = page;
    setText(byId('post-heading'), '');
    const title = await titleOf(id);
    if (id === this.#id) setText(byId('post-heading'), title);
  }

  #draw(before) {
    const { likes, dislikes } = this.#shown;
    for (const [name, count, was] of [['post-likes', likes, before?.likes], ['post-dislikes', dislikes, before?.dislikes]]) {
      const target = byId(name);
      setText(target, number(count));
      if (was === undefined || was === count) continue;
      target.classList.remove('bump');
      void target.offsetWidth; // a reflow restarts the animation
      target.classList.add('bump');
    }
    this.#past.push({ at: Date.now() / 1000, likes });
    if (before && (before.likes !== likes || before.dislikes !== dislikes)) {
      this.#say(`Post ${this.#id} has ${counted(likes, 'like')} and ${counted(dislikes, 'dislike')}.`);
    }
    this.#pass();
  }

  /** pass moves the chart and the note to now. */
  #pass() {
    this.#note();
    if (!this.#shown || document.hidden || this.#status.stale) return;
    const now = Date.now() / 1000;
    // Keep one older change: the level at the left edge.
    while (this.#past.length > 1 && this.#past[1].at < now - chartSeconds) this.#past.shift();
    this.#chart ??= countChart(byId('post-chart'), chartSeconds);
    this.#chart.show([[...this.#past.map((p) => p.at), now], [...this.#past.map((p) => p.likes), this.#shown.likes]]);
  }

  /** note shows the recent change, and the offset that the counts reflect. */
  #note() {
    if (!this.#shown) return setText(byId('post-note'), this.#id ? 'Waiting for the counts…' : '');
    const { likes, dislikes, as_of: asOf } = this.#shown;
    const since = Date.now() / 1000 - rateSeconds;
    const then = this.#past.findLast((p) => p.at <= since) ?? this.#past[0];
    const growth = likes - then.likes;
    const place = `as of partition ${asOf.partition}, offset ${asOf.offset}`;
    // While the connection is lost, nothing is known of the last seconds.
    if (this.#status.stale) return setText(byId('post-note'), `Last known ${place}`);
    const none = likes === 0 && dislikes === 0;
    const lately = none ? 'No reactions to this post' : `${growth ? signed(growth) : 'No change'} in the last ${rateSeconds} s`;
    setText(byId('post-note'), `${lately} · ${place}`);
  }
}
