// The history of the open post, alone or compared with another one (#compare=43).

import { byId, setText } from './dom.js';
import { History } from './history.js';
import { idHint, number, parseId } from './format.js';
import { LiveStream } from './live.js';
import { linkTo, route } from './route.js';
import { titleOf } from './titles.js';

const pathOf = (id) => `/v1/posts/${id}/history`;

export class Compare {
  history = new History('changes', '24h', () => [this.#id, this.#other].filter(Boolean).map((id) => ({ name: `Post ${id}`, path: pathOf(id) })));
  #status;
  #id = '';
  #other = '';
  #stream = null;

  constructor(status) {
    this.#status = status;
    byId('compare-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const other = parseId(byId('compare-input').value);
      this.#judge(other, byId('compare-input').value ? idHint : '');
      location.hash = linkTo({ post: this.#id, compare: other });
    });
    byId('compare-form').addEventListener('keydown', (event) => event.key === 'Escape' && this.#end());
    byId('compare-end').addEventListener('click', () => this.#end());
    window.addEventListener('hashchange', () => this.#follow());
  }

  /** open shows another post. */
  open(id) {
    this.#id = id;
    byId('changes-panel').hidden = false;
    setText(byId('compare-first-likes'), '–');
    this.#name('first', id);
    this.#follow(true);
  }

  /** take shows the counts of the open post. */
  take(counts) {
    this.#show('first', counts);
  }

  #follow(load = false) {
    const { compare } = route();
    const other = parseId(compare ?? '') ?? '';
    if (compare !== undefined) this.#judge(other, `The URL asks for post “${compare.slice(0, 40)}”. ${idHint}`);
    if (other !== this.#other) {
      this.#other = other;
      load = true;
      this.#stream?.close();
      this.#stream = other && new LiveStream({ post_ids: other }, 'likes', (counts) => this.#show('second', counts),
        (state) => this.#status.set('compare', state));
      byId('compare-input').value = other;
      byId('compare-second').hidden = byId('compare-end').hidden = !other;
      setText(byId('compare-second-likes'), '–');
      if (other) this.#name('second', other);
    }
    if (load && this.#id) this.history.load();
  }

  async #name(place, id) {
    setText(byId(`compare-${place}-name`), `Post ${id}`);
    const title = await titleOf(id);
    if (title && id === (place === 'first' ? this.#id : this.#other)) setText(byId(`compare-${place}-name`), `${title} (${id})`);
  }

  #show(place, { likes, dislikes }) {
    setText(byId(`compare-${place}-likes`), `${number(likes)} / ${number(dislikes)}`);
  }

  #judge(valid, hint) {
    setText(byId('compare-error'), valid ? '' : hint);
    byId('compare-input').setAttribute('aria-invalid', String(!valid && Boolean(hint)));
  }

  #end() {
    this.#judge(true, '');
    byId('compare-input').value = '';
    location.hash = linkTo({ compare: '' });
    byId('compare-input').focus();
  }
}
