// Entry point: creates the page's parts, connects them, and shows the page that the URL names.

import { ApiError, get } from './api.js';
import { Compare } from './compare.js';
import { byId } from './dom.js';
import { Headline } from './headline.js';
import { Health } from './health.js';
import { History } from './history.js';
import { Likers } from './likers.js';
import { Post } from './post.js';
import { linkTo, route } from './route.js';
import { Status } from './status.js';
import { configure } from './titles.js';
import { Trending } from './trending.js';

/** settings of the reader; without them the page works, but has no like button, links and titles. */
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
const history = new History('history', '24h', () => [{ name: 'All posts', path: '/v1/analytics/likes' }]);
history.start();

const found = await settings();
configure(found);
const likers = new Likers();
const compare = new Compare(status);
compare.history.start();
const post = new Post(status, {
  producer: found.producer_url,
  onOpen: (id) => {
    trending.mark(id);
    likers.open(id);
    compare.open(id);
  },
  onCounts: (counts) => compare.take(counts),
});
const trending = new Trending(status, {
  onList: (regions) => {
    history.regions(regions);
    compare.history.regions(regions);
    if (!regions.length) post.suggest('1'); // no likes yet: offer a post
  },
  onLeader: (id) => post.suggest(id),
});
const health = new Health(status, found.grafana_url);
post.start();
trending.start();

const pages = { home: 'kudos', health: 'Health – kudos' };
let shown = '';

/** showPage shows the page that the URL names. After a change, its heading gets the focus, like that of a new document. */
function showPage() {
  const name = route().page === 'health' ? 'health' : 'home';
  for (const page of Object.keys(pages)) {
    byId(page).hidden = page !== name;
    byId(`nav-${page}`).href = linkTo({ page: page === 'home' ? '' : page });
    if (page === name) byId(`nav-${page}`).setAttribute('aria-current', 'page');
    else byId(`nav-${page}`).removeAttribute('aria-current');
  }
  document.title = pages[name];
  if (name === shown) return;
  health.show(name === 'health');
  if (shown) byId(`${name}-title`).focus();
  shown = name;
}

showPage();
window.addEventListener('hashchange', showPage);
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && shown === 'health') location.hash = linkTo({ page: '' });
});

// The hash holds the page's state, so the skip link must not change it.
document.querySelector('[data-skip]').addEventListener('click', (event) => {
  event.preventDefault();
  byId('main').focus();
});
