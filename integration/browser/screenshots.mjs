// Takes the README's screenshots of the dashboard after `kudos dev --simulate` has run a while.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { launch, live, open, text } from './driver.mjs';

const directory = process.env.KUDOS_TEST_SCREENSHOTS;
const watched = 150_000; // ms, most of the time range of the charts
const mostBytes = 200_000; // per picture

const pictures = [
  ['dashboard.png', 'light', { width: 1280, height: 1210 }],
  ['dashboard-dark.png', 'dark', { width: 1280, height: 1210 }],
  ['dashboard-phone.png', 'light', { width: 360, height: 780 }],
];

mkdirSync(directory, { recursive: true });
const browser = await launch();
try {
  const page = await open(browser, '#region=global&window=10m');
  await live(page);
  await page.waitForSelector('#ranking-rows tr');
  await new Promise((resolve) => setTimeout(resolve, watched));
  await page.click('#like');
  await text(page, '#standing', 'This user likes this post.');
  await page.waitForFunction(() => document.getElementById('step-counted').dataset.state === 'done');
  // Wait until a post rises; now and then one goes viral.
  await page.waitForSelector('[data-kind=up]', { timeout: 60_000 });
  await page.evaluate(() => document.activeElement.blur());
  for (const [name, colorScheme, viewport] of pictures) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.setViewportSize(viewport);
    await page.evaluate(() => scrollTo(0, 0));
    // Wait until charts are resized and animations have ended.
    await page.waitForFunction(() => document.querySelector('#rate-chart canvas').clientWidth === document.getElementById('rate-chart').clientWidth
      && document.getAnimations().every((animation) => animation.effect.getTiming().iterations === Infinity));
    const path = join(directory, name);
    await page.screenshot({ path });
    const { length } = readFileSync(path);
    assert.ok(length < mostBytes, `${name} has ${length} bytes`);
    console.log(`${name}: ${length} bytes`);
  }
} finally {
  await browser.close();
}
