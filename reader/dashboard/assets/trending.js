// Trending: the live ranking of a region and window.

import { ApiError, address, get } from './api.js';
import { download } from './csv.js';
import { byId, element, fillSegments, fillSelect, politely, reducedMotion, setText, whileVisible } from './dom.js';
import { counted, number, regionName, score, sortRegions, timeOfDay, windowMinutes, windowName } from './format.js';
import { LiveStream } from './live.js';
import { linkTo, replaceRoute, route } from './route.js';
import { titleOf } from './titles.js';

const listEvery = 30_000; // ms between requests for the list; less while the wanted ranking is missing
const changeStays = 12_000; // ms that a rank change is shown
const few = 10; // posts shown initially

export class Trending {
  #status;
  #onList; // called with the regions that have rankings
  #onLeader; // called with each post in first place
  #rankings = []; // { region, window } available
  #wish = { region: 'global', window: '1h' }; // shown once it exists
  #chosen = null; // { region, window } shown
  #stream = null;
  #ranking = null;
  #rows = new Map(); // post id → row
  #ranks = new Map(); // post id → last rank shown
  #changes = new Map(); // post id → { text, kind, until }
  #open = ''; // the post in the post panel
  #all = false;
  #say = politely(30_000);
  #leader = '';

  constructor(status, { onList, onLeader }) {
    this.#status = status;
    this.#onList = onList;
    this.#onLeader = onLeader;
    byId('trending-region').addEventListener('change', (event) => this.#byHand({ region: event.target.value }));
    byId('ranking-more').addEventListener('click', () => {
      this.#all = !this.#all;
      this.#draw();
    });
    byId('ranking-csv').addEventListener('click', () => this.#download());
    window.addEventListener('hashchange', () => this.#follow());
  }

  start() {
    this.#follow();
    const fulfilled = () => this.#chosen?.region === this.#wish.region && this.#chosen.window === this.#wish.window;
    whileVisible(() => this.#list(), () => (fulfilled() ? listEvery : 2_000));
  }

  /** mark the post in the post panel. */
  mark(post) {
    this.#open = post;
    for (const [id, row] of this.#rows) row.link.setAttribute('aria-current', String(id === post));
  }

  async #list() {
    try {
      const { rankings } = await get('/v1/trending');
      this.#rankings = rankings;
      this.#onList([...new Set(rankings.map((r) => r.region))]);
      if (!rankings.length) return this.#note('No rankings yet: kudos ranker computes them from likes.');
      this.#choose();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (!this.#ranking) this.#note(error.message);
    }
  }

  /** follow the URL. */
  #follow() {
    const { region, window } = route();
    this.#wish = { region: region ?? this.#wish.region, window: window ?? this.#wish.window };
    if (this.#rankings.length) this.#choose();
  }

  /** byHand applies a user's choice, which goes into the URL. */
  #byHand(change) {
    this.#wish = { ...this.#chosen, ...change };
    this.#choose();
    this.#wish = this.#chosen;
    replaceRoute(this.#chosen);
    this.#draw(); // its links contain the choice
  }

  /** choose the wanted ranking, else another of its region, else any. */
  #choose() {
    const inRegion = this.#rankings.filter((r) => r.region === this.#wish.region);
    const { region, window } = inRegion.find((r) => r.window === this.#wish.window) ?? inRegion[0] ?? this.#rankings[0];
    if (region === this.#chosen?.region && window === this.#chosen?.window) return this.#options();
    this.#chosen = { region, window };
    this.#options();
    this.#subscribe();
  }

  #options() {
    const { region, window } = this.#chosen;
    const regions = [...new Set(this.#rankings.map((r) => r.region))];
    fillSelect(byId('trending-region'), sortRegions(regions).map((code) => [code, regionName(code)]), region);
    const windows = this.#rankings.filter((r) => r.region === region).map((r) => r.window).sort((a, b) => windowMinutes(a) - windowMinutes(b));
    fillSegments(byId('trending-windows'), 'window', windows.map((name) => [name, windowName(name)]), window, (name) => this.#byHand({ window: name }));
  }

  #subscribe() {
    this.#stream?.close();
    for (const kept of [this.#rows, this.#ranks, this.#changes]) kept.clear();
    this.#ranking = null;
    this.#leader = '';
    byId('ranking-rows').replaceChildren();
    const query = { trending: this.#chosen.region, window: this.#chosen.window };
    setText(byId('trending-source'), `GET ${address('/v1/stream', query)}`);
    this.#note('Waiting for the ranking…');
    this.#stream = new LiveStream(query, 'trending', (ranking) => this.#show(ranking), (state) => this.#status.set('trending', state));
  }

  #show(ranking) {
    const first = this.#ranking === null;
    this.#ranking = ranking;
    const until = performance.now() + changeStays;
    for (const { post_id: post, rank, previous_rank: previous } of ranking.posts) {
      // Relative to the ranking shown last, as the stream may skip some; at first relative to previous_rank.
      const before = first ? previous : this.#ranks.get(post) ?? 0;
      if (before !== rank && !(first && before === 0)) this.#changes.set(post, { ...change(before, rank), until });
    }
    this.#ranks = new Map(ranking.posts.map((post) => [post.post_id, post.rank]));
    this.#draw();
    setTimeout(() => this.#fade(), changeStays + 50);
    const leader = ranking.posts[0]?.post_id ?? '';
    if (leader) this.#onLeader(leader);
    if (leader && this.#leader && leader !== this.#leader) {
      this.#say(`Post ${leader} is now first, with ${counted(ranking.posts[0].likes, 'like')}.`);
    }
    this.#leader = leader;
  }

  #draw() {
    if (!this.#ranking) return;
    const { posts, to, score: kind, half_life: halfLife } = this.#ranking;
    const { region, window } = this.#chosen;
    const shown = this.#all ? posts : posts.slice(0, few);
    const decay = kind === 'decay';
    byId('score-head').hidden = !decay;
    byId('ranking').hidden = byId('ranking-csv').hidden = !posts.length;
    setText(byId('ranking-caption'), `Posts with the most likes: ${regionName(region)}, ${windowName(window)}`);
    const end = window === 'day' ? 'likes of today (UTC)' : to ? `to ${timeOfDay(new Date(to))} UTC` : 'all current likes';
    const weight = decay ? `; the weight of a like halves every ${halfLife}` : '';
    this.#note(posts.length ? `Each user counts once, ${end}${weight}` : 'No likes in this window.');

    const most = Math.max(1, ...shown.map((post) => post.likes));
    reorder(byId('ranking-rows'), shown.map((post) => this.#row(post, most, decay)));
    for (const id of this.#rows.keys()) if (!this.#ranks.has(id)) this.#rows.delete(id);

    const more = byId('ranking-more');
    more.hidden = posts.length <= few;
    more.setAttribute('aria-expanded', String(this.#all));
    setText(more, this.#all ? `Show the first ${few}` : `Show all ${posts.length}`);
  }

  /** row reuses elements, for focus and animation. */
  #row({ post_id: id, rank, likes, score: points }, most, decay) {
    let row = this.#rows.get(id);
    if (!row) {
      row = {
        rank: element('th', { scope: 'row', class: 'col-rank' }),
        change: element('td', { class: 'col-change' }),
        link: element('a', { class: 'row-link' }, id),
        score: element('td', { class: 'col-score' }),
        likes: element('td', { class: 'col-likes' }),
      };
      row.element = element('tr', { 'data-post': id }, row.rank, row.change, element('td', { class: 'col-post' }, row.link), row.score, row.likes);
      this.#rows.set(id, row);
      titleOf(id).then((title) => title && row.link.replaceChildren(title, ' ', element('span', { class: 'row-id' }, id)));
    }
    setText(row.rank, String(rank));
    row.link.href = linkTo({ post: id, compare: '' });
    row.link.setAttribute('aria-current', String(id === this.#open));
    row.score.hidden = !decay;
    setText(row.score, score(points));
    setText(row.likes, number(likes));
    row.element.style.setProperty('--share', String(likes / most));
    this.#drawChange(id, row);
    return row.element;
  }

  async #download() {
    const { region, window } = this.#chosen;
    const shown = this.#all ? this.#ranking.posts : this.#ranking.posts.slice(0, few);
    const titles = await Promise.all(shown.map((post) => titleOf(post.post_id)));
    download(`trending-${region}-${window}`, [['rank', 'post_id', 'title', 'likes', 'score'],
      ...shown.map((post, i) => [post.rank, post.post_id, titles[i], post.likes, post.score])]);
  }

  #drawChange(id, row) {
    const { kind = 'same', sign = '', text = 'no change' } = this.#changes.get(id) ?? {};
    if (row.change.dataset.text === text) return;
    row.change.dataset.text = text;
    row.change.dataset.kind = kind;
    row.change.replaceChildren(element('span', { 'aria-hidden': 'true' }, sign), element('span', { class: 'hidden' }, text));
  }

  /** fade removes expired rank changes. */
  #fade() {
    const now = performance.now();
    for (const [id, { until }] of this.#changes) {
      if (until > now) continue;
      this.#changes.delete(id);
      const row = this.#rows.get(id);
      if (row) this.#drawChange(id, row);
    }
  }

  #note(text) {
    setText(byId('trending-note'), text);
  }
}

/** change of rank; before is 0 if unranked. */
function change(before, rank) {
  if (before === 0) return { kind: 'new', sign: 'new', text: 'new' };
  const by = Math.abs(before - rank);
  if (rank < before) return { kind: 'up', sign: `▲ ${by}`, text: `up ${by}` };
  return { kind: 'down', sign: `▼ ${by}`, text: `down ${by}` };
}

/** reorder replaces the rows; existing ones glide to their new positions. */
function reorder(body, rows) {
  const focused = document.activeElement;
  const same = body.children.length === rows.length && rows.every((row, i) => row === body.children[i]);
  if (same) return;
  const tops = new Map([...body.children].map((row) => [row, row.getBoundingClientRect().top]));
  body.replaceChildren(...rows);
  if (focused && body.contains(focused)) focused.focus({ preventScroll: true }); // a moved element loses focus
  if (reducedMotion() || !tops.size) return;
  for (const row of rows) {
    const moved = tops.has(row) ? tops.get(row) - row.getBoundingClientRect().top : null;
    if (moved === null) row.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 500 });
    else if (moved) row.animate([{ transform: `translateY(${moved}px)` }, { transform: 'none' }], { duration: 500, easing: 'cubic-bezier(.2,.8,.2,1)' });
  }
}
