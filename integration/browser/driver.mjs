// Playwright helpers: pages that record faults, and waits with a timeout.

import { chromium } from 'playwright-core';

/** Set by the Go test in this directory. */
export const reader = process.env.KUDOS_READER;
export const producer = process.env.KUDOS_PRODUCER;
/** A server of posts' titles, a processor's admin server, and an admin server that does not exist. */
export const [titles, admin, gone] = [process.env.KUDOS_TITLES, process.env.KUDOS_ADMIN, process.env.KUDOS_GONE];
const control = process.env.KUDOS_CONTROL;

/** Timeout of a step in ms, sufficient on slow machines. */
export const patience = 60_000;

export async function launch() {
  return chromium.launch({
    executablePath: process.env.KUDOS_CHROMIUM,
    // Chromium's sandbox does not work as root (CI). Tests open local pages only.
    args: process.getuid() === 0 ? ['--no-sandbox'] : [],
  });
}

/**
 * open a page in its own browser context (storage, connections).
 * @returns the page, with `faults`: its console errors and warnings, and requests to other hosts
 */
export async function open(browser, hash = '', options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  page.faults = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) page.faults.push(`console ${message.type()}: ${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', (error) => page.faults.push(`uncaught: ${error.stack}`));
  page.on('request', (request) => {
    const { origin, protocol } = new URL(request.url());
    if (protocol !== 'data:' && ![reader, producer, titles].includes(origin)) page.faults.push(`request to another host: ${request.url()}`);
  });
  await page.goto(`${reader}/${hash}`);
  return page;
}

/** text waits until an element has the wanted text. */
export async function text(page, selector, wanted, timeout = patience) {
  try {
    const so = ([selector, wanted]) => document.querySelector(selector)?.textContent.trim() === wanted;
    await page.waitForFunction(so, [selector, wanted], { timeout });
  } catch (error) {
    throw new Error(`${selector} is “${await page.textContent(selector)}” and not “${wanted}” within ${timeout} ms`, { cause: error });
  }
}

export const live = (page) => text(page, '#status', 'live');

/** lost waits until the page says since when it knows nothing. */
export const lost = (page) => page.waitForFunction(() => /^(as of \d\d:\d\d:\d\d, )?connection lost$/.test(document.getElementById('status').textContent));

/** react likes (PUT) or withdraws (DELETE). */
export async function react(method, post, user) {
  const response = await fetch(`${producer}/v1/posts/${post}/likes/${user}?region=DE`, { method });
  if (response.status !== 202) throw new Error(`${method} of user ${user} for post ${post}: ${response.status} ${await response.text()}`);
}

/** tell the Go test what to do: reader/kill, reader/start or audit. */
export async function tell(what) {
  const response = await fetch(`${control}/${what}`, { method: 'POST' });
  if (!response.ok) throw new Error(`${what}: ${await response.text()}`);
}
