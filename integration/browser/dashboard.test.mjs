// Browser tests of the dashboard. Each test uses its own posts, so they are independent.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';

import { launch, live, open, patience, producer, react, reader, tell, text } from './driver.mjs';

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
  await tell('reader/kill');
  await text(page, '#status', 'reconnecting…');
  for (const user of [4, 5, 6, 7]) await react('PUT', '7100', user);
  const resumed = page.waitForResponse((response) => new URL(response.url()).searchParams.get('post_ids') === '7100');
  const began = performance.now();
  await tell('reader/start');
  t.diagnostic(`the reader was back after ${Math.round(performance.now() - began)} ms`);
  // It resumes from its last event id, so it cannot get an older count.
  assert.match(new URL((await resumed).url()).searchParams.get('last_event_id'), /.:\d+$/);
  await text(page, '#post-likes', '7');
  await live(page);
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
  await text(page, '#status', 'reconnecting…');
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

for (const colorScheme of ['light', 'dark']) {
  for (const [device, viewport] of [['desktop', { width: 1280, height: 900 }], ['phone', { width: 360, height: 740 }]]) {
    test(`accessible: ${device}, ${colorScheme}`, options, async (t) => {
      await react('PUT', '7300', 1);
      const page = await open(browser, '#post=7300', { colorScheme, reducedMotion: 'reduce' });
      await live(page);
      await page.setViewportSize(viewport); // as by rotating a phone
      await page.waitForSelector('#ranking-rows tr');
      await page.click('#history-details summary');
      await page.waitForSelector('#history-rows tr');
      await page.click('#like');
      await page.waitForFunction(() => document.getElementById('step-counted').dataset.state === 'done');
      await page.fill('#post-input', 'nonsense');
      await page.click('#post-form button');
      await page.waitForSelector('#post-error:not(:empty)');
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run());
      const told = violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map((node) => `${node.target} (${node.failureSummary})`).join('; ')}`);
      for (const line of told) t.diagnostic(line);
      assert.deepEqual(told.filter((line) => /^(serious|critical)/.test(line)), []);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), viewport.width, 'the page is wider than its window');
      const wide = () => [...document.querySelectorAll('.chart')].filter((chart) => chart.firstChild.offsetWidth > chart.clientWidth).map((chart) => chart.id);
      assert.deepEqual(await page.evaluate(wide), [], 'charts are wider than their container');
      await close(page);
    });
  }
}

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
  await page.check('#history-intervals input[value=day]', { force: true });
  await text(page, '#history-note', 'Not available now: MySQL does not answer');
  assert.equal(await page.textContent('#status'), 'live');
  await page.unroute(analytics);
  await page.check('#history-intervals input[value=hour]', { force: true });
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
