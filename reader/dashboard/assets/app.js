// Entry point: creates the page's parts and connects them.

import { ApiError, get } from './api.js';
import { byId } from './dom.js';
import { Headline } from './headline.js';
import { History } from './history.js';
import { Post } from './post.js';
import { Status } from './status.js';
import { Trending } from './trending.js';

/** settings of the reader; without them the page works, but has no like button. */
async function settings() {
  try {
    return await get('/dashboard.json');
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { producer_url: '' };
  }
}

const status = new Status(byId('status'));
new Headline(status).start();
const history = new History();
history.start();

const { producer_url: producer } = await settings();
const post = new Post(status, { producer, onOpen: (id) => trending.mark(id) });
const trending = new Trending(status, {
  onList: (regions) => {
    history.regions(regions);
    if (!regions.length) post.suggest('1'); // no likes yet: offer a post
  },
  onLeader: (id) => post.suggest(id),
});
post.start();
trending.start();

// The hash holds the page's state, so the skip link must not change it.
document.querySelector('[data-skip]').addEventListener('click', (event) => {
  event.preventDefault();
  byId('main').focus();
});
