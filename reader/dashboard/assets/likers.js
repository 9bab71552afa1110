// Who likes the open post, a page at a time, ordered by user id.

import { ApiError, get } from './api.js';
import { download } from './csv.js';
import { byId, element, setText } from './dom.js';
import { counted, regionName } from './format.js';

const pageSize = 50;

export class Likers {
  #id = '';
  #list = [];
  #next = ''; // page token; '': the last page is shown
  #turn = new AbortController(); // aborts requests for another post

  constructor() {
    byId('likers').addEventListener('toggle', () => byId('likers').open && !this.#list.length && this.#load());
    byId('likers-more').addEventListener('click', () => this.#load());
    byId('likers-again').addEventListener('click', () => this.open(this.#id));
    byId('likers-csv').addEventListener('click', () => download(`likers-${this.#id}`,
      [['user_id', 'since', 'region'], ...this.#list.map((one) => [one.user_id, one.since, one.region])]));
  }

  /** open another post, or the same from its first page. */
  open(id) {
    this.#turn.abort();
    this.#turn = new AbortController();
    this.#id = id;
    this.#list = [];
    this.#next = '';
    byId('likers-rows').replaceChildren();
    this.#draw('');
    if (byId('likers').open) this.#load();
  }

  async #load() {
    const { signal } = this.#turn;
    try {
      const page = await get(`/v1/posts/${this.#id}/likers`, { page_size: pageSize, page_token: this.#next }, { signal });
      if (signal.aborted) return;
      this.#list.push(...page.likers);
      this.#next = page.next_page_token ?? '';
      byId('likers-rows').append(...page.likers.map(({ user_id: user, since, region }) => element('tr', {},
        element('th', { scope: 'row' }, user), element('td', {}, since.slice(0, 19).replace('T', ' ')), element('td', {}, regionName(region)))));
      const { partition, offset } = page.as_of;
      this.#draw(`${this.#next ? 'The first ' : ''}${counted(this.#list.length, 'user')} · as of partition ${partition}, offset ${offset}`);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.#draw(error.message);
    }
  }

  #draw(note) {
    setText(byId('likers-note'), note);
    byId('likers-table').hidden = byId('likers-csv').hidden = byId('likers-again').hidden = !this.#list.length;
    byId('likers-more').hidden = !this.#next;
  }
}
