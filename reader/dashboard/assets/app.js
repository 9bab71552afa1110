// The page: its parts, and what they tell each other.

import { ApiError, get } from './api.js';
import { byId } from './dom.js';
import { Headline } from './headline.js';
import { History } from './history.js';
import { Post } from './post.js';
import { Status } from './status.js';
import { Trending } from './trending.js';

/** settings of the reader; without them the page goes on, and has no like button. */
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
    if (!regions.length) post.suggest('1'); // something to like, where nothing is liked yet
  },
  onLeader: (id) => post.suggest(id),
});
post.start();
trending.start();

// An address with # is a view of the page here, so this link cannot be one of those.
document.querySelector('[data-skip]').addEventListener('click', (event) => {
  event.preventDefault();
  byId('main').focus();
});
