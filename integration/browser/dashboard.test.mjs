// Browser tests of the dashboard. Each test uses its own posts, so they are independent.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';

import { admin, gone, launch, live, lost, open, patience, producer, react, reader, tell, text } from './driver.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const options = { timeout: 240_000 };
/** An id beyond exact JavaScript numbers. */
const largest = '18446744073709551615';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** close a page; faults that are not tolerated fail the test. */
async function close(page, tolerated = /^$/) {
  assert.deepEqual(page.faults.filter((fault) => !tolerated.test(fault)), []);
  await page.context().close();
}

test('a like in one page moves the count in another within a second', options, async (t) => {
  const [liker, watcher] = [await open(browser, `#post=${largest}`), await open(browser, `#post=${largest}`)];
  for (const page of [liker, watcher]) {
    await live(page);
    await text(page, '#post-id', largest);
    await text(page, '#post-likes', '0');
  }
  // performance.timeOrigin makes the times of the two pages comparable.
  await liker.evaluate(() => document.getElementById('like').addEventListener('click', () => {
    window.pressed = performance.timeOrigin + performance.now();
  }, { capture: true }));
  const took = [];
  const likes = 9;
  for (let count = 1; count <= likes; count++) {
    await liker.click('#user-random');
    await text(liker, '#standing', 'This user has no reaction to this post.');
    const seen = watcher.evaluate(([count, timeout]) => new Promise((resolve, reject) => {
      const likes = document.getElementById('post-likes');
      const look = () => likes.textContent === count && resolve(performance.timeOrigin + performance.now());
      new MutationObserver(look).observe(likes, { childList: true, characterData: true, subtree: true });
      setTimeout(() => reject(new Error(`the count is ${likes.textContent} and not ${count} after ${timeout} ms`)), timeout);
    }), [String(count), patience]);
    await liker.click('#like');
    took.push(Math.round((await seen) - (await liker.evaluate(() => window.pressed))));
    await text(liker, '#standing', 'This user likes this post.');
    await liker.waitForFunction(() => document.getElementById('step-counted').dataset.state === 'done');
  }
  t.diagnostic(`from the click to the count in another page: ${took.join(', ')} ms`);
  // The median, because other tests on this machine may delay single likes.
  const median = took.toSorted((a, b) => a - b)[Math.floor(likes / 2)];
  assert.ok(median < 1_000, `the median is ${median} ms`);

  assert.match(await liker.textContent('#step-kafka'), /partition \d, offset \d+/);
  assert.match(await liker.textContent('#step-counted'), /\d ms after the click/);
  // A repeated reaction changes nothing, and the page says so.
  await liker.click('#like');
  await liker.waitForFunction(() => document.getElementById('step-counted').textContent.includes('Nothing changed'));
  await text(liker, '#post-likes', String(likes));
  await liker.click('#withdraw');
  await text(liker, '#standing', 'This user has no reaction to this post.');
  for (const page of [liker, watcher]) await text(page, '#post-likes', String(likes - 1));
  await liker.click('#dislike');
  await text(liker, '#standing', 'This user dislikes this post.');
  for (const page of [liker, watcher]) await text(page, '#post-dislikes', '1');
  await close(liker);
  await close(watcher);
});

test('the ranking changes its order when a post overtakes another', options, async () => {
  // More likes than the posts of other tests have.
  for (let user = 1; user <= 20; user++) await react('PUT', '7001', user);
  for (let user = 1; user <= 18; user++) await react('PUT', '7002', user);
  const page = await open(browser, '#region=global&window=1h&post=7002');
  const order = (posts) => page.waitForFunction((posts) => {
    const [first, second] = document.querySelectorAll('#ranking-rows tr');
    return `${first?.dataset.post},${second?.dataset.post}` === posts;
  }, posts);
  await order('7001,7002');
  for (let user = 19; user <= 23; user++) await react('PUT', '7002', user);
  await order('7002,7001');
  await page.waitForFunction(() => document.querySelector('tr[data-post="7002"] .col-change').textContent.includes('up 1'));
  await page.waitForFunction(() => document.querySelector('tr[data-post="7001"] .col-change').textContent.includes('down 1'));

  // A row opens its post; the URL names the post and keeps the region.
  await page.click('tr[data-post="7001"]');
  await text(page, '#post-id', '7001');
  await text(page, '#post-likes', '20');
  assert.equal(new URL(page.url()).hash, '#post=7001&region=global&window=1h');
  await page.goBack();
  await text(page, '#post-id', '7002');

  // Germany has its own ranking, and the page offers it.
  await page.selectOption('#trending-region', 'DE');
  await order('7002,7001');
  assert.match(new URL(page.url()).hash, /region=DE/);
  await close(page);
});

test('a ranking that does not exist yet is shown as soon as it does', options, async () => {
  for (let user = 1; user <= 12; user++) await react('PUT', '7003', user); // enough to be among the first
  const context = await browser.newContext();
  const page = await context.newPage();
  let seen = false;
  await page.route('**/v1/trending', (route) => (seen
    ? route.continue()
    : route.fulfill({ json: { rankings: [{ region: 'global', window: 'all', to: null, posts: 1 }] } })));
  await page.goto(`${reader}/#window=10m`);
  await page.waitForSelector('#trending-windows input[value=all]:checked');
  seen = true;
  await page.waitForSelector('#trending-windows input[value="10m"]:checked');
  await page.waitForSelector('tr[data-post="7003"]');
  await context.close();
});

test('when a reader is killed and restarted, the page says so and shows the right count', options, async (t) => {
  for (const user of [1, 2, 3]) await react('PUT', '7100', user);
  const page = await open(browser, '#post=7100');
  await live(page);
  await text(page, '#post-likes', '3');
  const before = new Date();
  await tell('reader/kill');
  await lost(page);
  // Nothing is asserted: the figures are marked as old, and the page says how old.
  const [, ...at] = /^as of (\d\d):(\d\d):(\d\d), connection lost$/.exec(await page.textContent('#status')).map(Number);
  const since = new Date(before).setHours(...at);
  assert.ok(Math.abs(since - before) < 10_000, `it is as of ${new Date(since)}, and the reader was killed at ${before}`);
  assert.equal(await page.getAttribute('body', 'data-stale'), 'true');
  await page.waitForFunction(() => /^Last known as of partition/.test(document.getElementById('post-note').textContent));
  await text(page, '#likes-rate', '–');
  await text(page, '#lag', '–');
  await clean(page, t);
  for (const user of [4, 5, 6, 7]) await react('PUT', '7100', user);
  const resumed = page.waitForResponse((response) => new URL(response.url()).searchParams.get('post_ids') === '7100');
  const began = performance.now();
  await tell('reader/start');
  t.diagnostic(`the reader was back after ${Math.round(performance.now() - began)} ms`);
  // It resumes from its last event id, so it cannot get an older count.
  assert.match(new URL((await resumed).url()).searchParams.get('last_event_id'), /.:\d+$/);
  await text(page, '#post-likes', '7');
  await live(page);
  assert.equal(await page.getAttribute('body', 'data-stale'), 'false');
  t.diagnostic(`the page was live again after ${Math.round(performance.now() - began)} ms`);
  // The page receives new likes again.
  await page.click('#like');
  await text(page, '#post-likes', '8');
  await close(page, /Failed to load resource|net::ERR_/); // Chromium logs these while a server is down
});

test('when a reader rejects streams for a while, the page retries until it gets them', options, async () => {
  await react('PUT', '7150', 1);
  const context = await browser.newContext();
  const page = await context.newPage();
  let refused = 0;
  await page.route('**/v1/stream?*', (route) => (++refused <= 5 ? route.fulfill({ status: 503, body: '{}' }) : route.continue()));
  await page.goto(`${reader}/#post=7150`);
  await lost(page);
  await text(page, '#post-likes', '1');
  await live(page);
  assert.ok(refused > 5);
  await context.close();
});

test('a hidden page closes its streams and resumes them when it is visible again', options, async () => {
  await react('PUT', '7160', 1);
  const page = await open(browser, '#post=7160');
  await text(page, '#post-likes', '1');
  const look = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  const ended = page.waitForEvent('requestfailed', (request) => request.url().includes('post_ids=7160')); // closed by the page
  await look(true);
  await ended;
  await react('PUT', '7160', 2);
  const resumed = page.waitForRequest((request) => request.url().includes('post_ids=7160') && request.url().includes('last_event_id='));
  await look(false);
  await resumed;
  await text(page, '#post-likes', '2');
  await close(page);
});

test('likes of a post in several partitions are counted', options, async () => {
  const page = await open(browser, '#post=7700'); // it has user buckets
  await live(page);
  await text(page, '#post-likes', '0');
  const partitions = new Set();
  for (let user = 1; partitions.size < 4 || user <= 8; user++) {
    await page.fill('#user-input', String(user));
    await page.press('#user-input', 'Enter');
    await text(page, '#standing', 'This user has no reaction to this post.');
    await page.click('#like');
    await page.waitForFunction(() => document.getElementById('step-counted').dataset.state === 'done');
    await text(page, '#post-likes', String(user));
    await text(page, '#standing', 'This user likes this post.');
    partitions.add(/partition (\d)/.exec(await page.textContent('#step-kafka'))[1]);
    assert.ok(user < 100, `all events are in partitions ${[...partitions]}`);
  }
  await close(page);
});

test('the like button can be used by keyboard alone', options, async () => {
  const page = await open(browser, '#post=7200');
  await live(page);
  await text(page, '#post-likes', '0');
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent.trim());
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'Skip to the content');
  await page.keyboard.press('Enter');
  assert.equal(await focused(), 'main');
  for (let presses = 0; (await focused()) !== 'like'; presses++) {
    assert.ok(presses < 60, `the like button is not reached; after 60 Tabs the focus is on ${await focused()}`);
    await page.keyboard.press('Tab');
    const outlined = await page.evaluate(() => {
      const at = document.activeElement;
      const styles = [getComputedStyle(at), getComputedStyle(at, '::after'), at.nextElementSibling && getComputedStyle(at.nextElementSibling)];
      return styles.some((style) => style && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2);
    });
    assert.ok(outlined, `the focus cannot be seen on ${await focused()}`);
  }
  // Start before the key press: the next announcement replaces this one.
  const told = page.waitForFunction(() => /^Counted after \d+ ms\. This user likes this post\./.test(document.getElementById('announcer').textContent));
  await page.keyboard.press('Space');
  await text(page, '#post-likes', '1');
  await text(page, '#standing', 'This user likes this post.');
  assert.equal(await page.getAttribute('#like', 'aria-pressed'), 'true');
  assert.equal(await focused(), 'like');
  await told;
  await close(page);
});

const schemes = ['light', 'dark'];
const devices = Object.entries({ desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 }, small: { width: 360, height: 740 } });
for (const colorScheme of schemes) {
  for (const [device, viewport] of devices) {
    test(`accessible: ${device}, ${colorScheme}`, options, async (t) => {
      for (const post of ['7300', '7301']) await react('PUT', post, 1);
      const page = await open(browser, '#post=7300&compare=7301', { colorScheme, reducedMotion: 'reduce' });
      await live(page);
      await page.setViewportSize(viewport); // as by rotating a phone
      await page.waitForSelector('#ranking-rows tr');
      for (const table of ['history', 'changes']) {
        await page.click(`#${table}-details summary`);
        await page.waitForSelector(`#${table}-rows tr`);
      }
      await page.click('#likers summary');
      await page.waitForSelector('#likers-rows tr');
      await page.click('#like');
      await page.waitForFunction(() => document.getElementById('step-counted').dataset.state === 'done');
      await page.fill('#post-input', 'nonsense');
      await page.click('#post-form button');
      await page.waitForSelector('#post-error:not(:empty)');
      await clean(page, t);
      await page.click('#nav-health');
      await page.waitForSelector('#health-rows tr');
      await clean(page, t);
      await close(page);
    });
  }
}

/** clean requires that axe finds nothing, and that nothing is wider than the window. */
async function clean(page, t) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  const told = violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map((node) => `${node.target} (${node.failureSummary})`).join('; ')}`);
  for (const line of told) t.diagnostic(line);
  assert.deepEqual(told, []);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), page.viewportSize().width, 'the page is wider than its window');
  const wide = () => [...document.querySelectorAll('.chart')].filter((chart) => chart.clientWidth && chart.firstChild?.offsetWidth > chart.clientWidth).map((chart) => chart.id);
  assert.deepEqual(await page.evaluate(wide), [], 'charts are wider than their container');
}

test('nothing below a history moves when it comes', options, async () => {
  for (const post of ['7310', '7311']) await react('PUT', post, 1);
  for (const [, viewport] of devices) {
    const page = await open(browser, '#post=7310&compare=7311');
    await page.setViewportSize(viewport);
    const answers = {};
    const paths = { changes: /\/history$/, history: /\/analytics\/likes$/ };
    for (const [table, path] of Object.entries(paths)) {
      answers[table] = [];
      await page.route(({ pathname }) => path.test(pathname), (route) => answers[table].push(() => route.continue()));
    }
    await page.reload();
    await live(page);
    await page.waitForSelector('#ranking-rows tr');
    for (const [table, below] of [['changes', 'history-panel'], ['history', 'history-source']]) {
      // Also what names the source, before it is asked.
      await page.waitForSelector(`#${table}-source:not(:empty)`);
      await page.locator(`#${table}-details`).scrollIntoViewIfNeeded();
      const height = () => page.evaluate((ids) => {
        const [from, to] = ids.map((id) => document.getElementById(id).getBoundingClientRect().top);
        return to - from;
      }, [`${table}-panel`, below]);
      const before = await height();
      assert.equal(await page.textContent(`#${table}-readout`), '');
      while (!(await page.textContent(`#${table}-readout`))) {
        answers[table].splice(0).forEach((answer) => answer());
        await new Promise((resolve) => { setTimeout(resolve, 50); });
      }
      assert.equal(await height(), before, `${table} moved what is below, in a window of ${viewport.width} pixels`);
    }
    await close(page);
  }
});

/** choose a range; the panel may still move while it loads. */
const choose = (page, panel, range) => page.click(`#${panel}-ranges label:has(input[value="${range}"])`);

test('errors are shown as text', options, async () => {
  const page = await open(browser, '#post=7400');
  await live(page);
  const problem = (status, type, detail, more) => ({
    status, contentType: 'application/problem+json', headers: { 'Access-Control-Allow-Origin': '*' },
    body: JSON.stringify({ type: `urn:kudos:problem:${type}`, title: 'A title', status, detail, ...more }),
  });
  // Kafka may or may not have the like: the page offers a retry with the same time.
  const puts = (url) => url.origin === producer;
  await page.route(puts, (route) => route.fulfill(problem(503, 'not-acknowledged', 'Kafka has not answered within 10s', { time_ms: 1700000000123 })));
  await page.click('#like');
  await text(page, '#reaction-error', 'Kafka has not answered within 10s');
  await page.unroute(puts);
  const again = page.waitForRequest((request) => puts(new URL(request.url())));
  await page.click('#repeat');
  assert.equal(new URL((await again).url()).searchParams.get('time_ms'), '1700000000123');
  await text(page, '#post-likes', '1');
  await text(page, '#reaction-error', '');

  await page.route(puts, (route) => route.abort());
  await page.click('#withdraw');
  await page.waitForFunction(() => /cannot be reached.*producer\.origins/.test(document.getElementById('reaction-error').textContent));
  await page.unroute(puts);

  await page.fill('#user-input', '0');
  await page.press('#user-input', 'Tab');
  await page.waitForSelector('#user-error:not(:empty)');

  // Without MySQL the rest of the page still works.
  const analytics = (url) => url.pathname === '/v1/analytics/likes';
  await page.route(analytics, (route) => route.fulfill(problem(503, 'no-database', 'MySQL does not answer')));
  await page.locator('#history-title').scrollIntoViewIfNeeded();
  await choose(page, 'history', '30d');
  await text(page, '#history-note', 'Not available now: MySQL does not answer');
  assert.equal(await page.textContent('#status'), 'live');
  await page.unroute(analytics);
  await choose(page, 'history', '24h');
  await page.waitForFunction(() => !document.getElementById('history-body').hidden);
  await close(page, /Failed to load resource|net::ERR_/);
});

test('without a producer there is no like button, and the page names the missing setting', options, async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.route('**/dashboard.json', (route) => route.fulfill({ json: { producer_url: '' } }));
  await page.goto(`${reader}/#post=7400`);
  await page.waitForSelector('#no-producer:not([hidden])');
  assert.match(await page.textContent('#no-producer'), /reader\.producer_url/);
  assert.equal(await page.isVisible('#like'), false);
  await context.close();
});

/** saved clicks, and returns the lines of the file that the page saves. */
async function saved(page, selector, name) {
  const download = page.waitForEvent('download');
  await page.click(selector);
  assert.equal((await download).suggestedFilename(), `kudos-${name}.csv`);
  return readFileSync(await (await download).path(), 'utf8').split('\r\n').slice(0, -1);
}

test('posts have titles and links, and titles are text', options, async () => {
  for (let user = 1; user <= 30; user++) await react('PUT', '7500', user); // among the first
  const page = await open(browser, '#post=7500');
  await live(page);
  const title = '=A <b>post</b> with the number 7500';
  await text(page, '#post-heading', title);
  assert.equal(await page.getAttribute('#post-link', 'href'), 'https://www.example.com/posts/7500');
  await text(page, 'tr[data-post="7500"] .row-link', `${title} 7500`);
  await text(page, 'tr[data-post="7500"] .col-likes', '30'); // a ranking comes later than counts
  // A spreadsheet must not take a title for a formula.
  const rows = await saved(page, '#ranking-csv', 'trending-global-1h');
  assert.equal(rows[0], 'rank,post_id,title,likes,score');
  assert.ok(rows.some((row) => /^\d+,7500,'=A <b>post<\/b> with the number 7500,30,30$/.test(row)), rows.join('\n'));
  await page.fill('#post-input', '7400');
  await page.click('#post-form button');
  await text(page, '#post-id', '7400');
  await text(page, '#post-heading', '');
  await close(page);
});

test('who likes a post is listed a page at a time', options, async () => {
  for (let user = 101; user <= 160; user++) await react('PUT', '7510', user);
  const page = await open(browser, '#post=7510');
  await text(page, '#post-likes', '60');
  await page.click('#likers summary');
  await page.waitForFunction(() => document.querySelectorAll('#likers-rows tr').length === 50);
  assert.match(await page.textContent('#likers-note'), /^The first 50 users · as of partition \d, offset \d+$/);
  await page.click('#likers-more');
  await page.waitForFunction(() => document.querySelectorAll('#likers-rows tr').length === 60);
  assert.equal(await page.isVisible('#likers-more'), false);
  assert.match(await page.textContent('#likers-rows tr'), /^101\d{4}-\d\d-\d\d \d\d:\d\d:\d\dGermany \(DE\)$/);
  const rows = await saved(page, '#likers-csv', 'likers-7510');
  assert.equal(rows.length, 61);
  assert.match(rows[60], /^160,\d{4}-.*Z,DE$/);
  // Another post has other users.
  await page.fill('#post-input', '7511');
  await page.click('#post-form button');
  await page.waitForFunction(() => !document.querySelector('#likers-rows tr') && /^0 users/.test(document.getElementById('likers-note').textContent));
  await close(page);
});

test('the history of a post by range and region, compared with another post', options, async () => {
  for (const user of [1, 2, 3]) await react('PUT', '7520', user);
  for (const user of [1, 2]) await react('PUT', '7521', user);
  const page = await open(browser, '#post=7520');
  await live(page);
  await text(page, '#compare-first-likes', '3 / 0');
  await page.locator('#changes-title').scrollIntoViewIfNeeded();
  const readout = (wanted) => page.waitForFunction((wanted) => document.getElementById('changes-readout').textContent.startsWith(wanted), wanted);
  await readout('Post 7520: 3 likes in the last 24 h, All regions');
  await page.fill('#compare-input', '7521');
  await page.press('#compare-input', 'Enter');
  await readout('Post 7520: 3 likes · Post 7521: 2 likes in the last 24 h');
  assert.match(new URL(page.url()).hash, /^#post=7520&compare=7521/);
  await page.waitForFunction(() => document.getElementById('compare-second-name').textContent.endsWith('(7521)'));
  await text(page, '#compare-second-likes', '2 / 0');
  await react('PUT', '7521', 3); // both are live
  await text(page, '#compare-second-likes', '3 / 0');
  await choose(page, 'changes', '7d');
  await readout('Post 7520: 3 likes · Post 7521: 3 likes in the last 7 days');
  await page.selectOption('#changes-region', 'DE');
  await page.waitForFunction(() => document.getElementById('changes-readout').textContent.includes('Germany (DE)'));
  const rows = await saved(page, '#changes-csv', 'changes-DE-7d');
  assert.equal(rows[0], 'from,"likes, Post 7520","dislikes, Post 7520","likes, Post 7521","dislikes, Post 7521"');
  assert.equal(rows.slice(1).reduce((sum, row) => sum + Number(row.split(',')[3]), 0), 3);
  await page.focus('#compare-input');
  await page.keyboard.press('Escape');
  await readout('Post 7520: 3 likes in the last 7 days');
  assert.equal(new URL(page.url()).hash.includes('compare'), false);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'compare-input');
  await close(page);
});

test('the health page shows partitions, the last audit and what does not answer, and can be used by keyboard', options, async (t) => {
  await react('PUT', '7530', 1);
  await tell('audit');
  const page = await open(browser, '#post=7530');
  await live(page);
  await page.focus('#nav-health');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#health:not([hidden])');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'health-title');
  assert.equal(await page.title(), 'Health – kudos');
  await page.waitForFunction(() => /^Audit at .* UTC: 0 differences; exit code 0\.$/.test(document.getElementById('audit-note').textContent));
  const rows = (await saved(page, '#health-csv', 'partitions')).slice(1);
  for (const [process, group] of [['this reader', 'counts'], ['this reader', 'reactions'], [admin, 'latest-like-action'], [admin, 'like-count']]) {
    const own = rows.filter((row) => row.startsWith(`${process},${group},`));
    assert.equal(own.length, 4, `${process} ${group}: ${rows.join('\n')}`);
    for (const row of own) assert.match(row, /,running,\d+,\d+$/);
  }
  assert.match(await page.textContent('#health-problems'), new RegExp(`^${gone} does not answer: `));
  assert.equal(await page.getAttribute('#grafana', 'href'), 'https://grafana.example.com/d/kudos');

  // What only a broken system has.
  const parked = { topic: 'likes', partition: 2, state: 'parked', cause: 'loss', reason: 'events are missing', action: 'kudos rebuild --accept-loss', position: { offset: 5 }, lag_records: 9 };
  await page.route('**/v1/health', (route) => route.fulfill({ json: {
    at: new Date().toISOString(), lanes: [], errors: ['Kafka did not return the end offsets: timeout'],
    processes: [{ url: admin, ready: false, checks: [{ name: 'processor', ready: false, error: 'x', detail: [{ group: 'latest-like-action', partitions: [parked] }] }] }],
    transactions: [{ topic: 'likes', partition: 1, offset: 4, high_watermark: 6 }], audit: { at: '2026-11-27T10:00:00Z', deep: true, differences: 2, not_compared: 1, exit: 3 } } }));
  await page.waitForFunction(() => document.querySelectorAll('#health-problems li').length === 3);
  assert.deepEqual(await page.locator('#health-problems li').allTextContents(), [
    `${admin}, latest-like-action, likes/2: parked (loss): events are missing. Action: kudos rebuild --accept-loss`,
    'The last audit found 2 differences. Action: kudos audit, then kudos rebuild.', 'Kafka did not return the end offsets: timeout']);
  await text(page, '#audit-note', 'Deep audit at 2026-11-27 10:00:00 UTC: 2 differences, 1 partition not compared; exit code 3.');
  assert.match(await page.textContent('#open-rows'), /^likes146\d+ s$/);
  await clean(page, t);
  await page.keyboard.press('Escape');
  await page.waitForSelector('#home:not([hidden])');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'home-title');
  await close(page);
});

test('a page has few requests and bytes', options, async (t) => {
  const page = await open(browser, 'assets/icons/kudos.svg'); // its origin, with an empty cache for the rest
  const asked = new Map();
  // Titles are an option, and come from another server.
  page.on('response', (response) => new URL(response.url()).origin === reader && asked.set(response.url(), response));
  await page.goto(`${reader}/#post=7540`);
  await live(page);
  await text(page, '#post-likes', '0');
  await text(page, '#standing', 'This user has no reaction to this post.');
  let bytes = 0;
  for (const response of asked.values()) {
    const { responseBodySize } = response.url().includes('/v1/') ? { responseBodySize: 0 } : await response.request().sizes();
    bytes += responseBodySize;
  }
  t.diagnostic(`${asked.size} requests, ${bytes} bytes without data: ${[...asked.keys()].map((url) => url.slice(reader.length, reader.length + 30)).join(' ')}`);
  assert.ok(asked.size <= 12);
  assert.ok(bytes <= 60_000 && bytes > 30_000);
  await close(page, /favicon\.ico/); // of the first page, which was an image
});
