// How long a newcomer waits: from a downloaded package to the first like that is seen in a browser.
//
//   KUDOS_CHROMIUM=/usr/bin/chromium node first-like.mjs PACKAGE.deb
//
// Installs the package (again, if it is installed), runs `kudos dev` from it, likes a post in the dashboard, and waits
// until its count there is 1. It fails if that takes longer than 15 s.

import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const within = 15_000; // ms
const began = performance.now();
const said = (what) => console.log(`first like: ${what} after ${((performance.now() - began) / 1000).toFixed(1)} s`);
const left = () => Math.max(1, within - (performance.now() - began));

execFileSync('dpkg', ['-i', process.argv[2]], { stdio: ['ignore', 'ignore', 'inherit'], timeout: within });
said('package installed');

const directory = mkdtempSync(join(tmpdir(), 'kudos-first-like-'));
const ready = join(directory, 'ready.json');
const free = '127.0.0.1:0';
const log = [];
const { PATH } = process.env; // and nothing that the program would take for a setting
const dev = spawn('/usr/bin/kudos', ['dev', '--ready-file', ready, '--kafka-addr', free, '--mysql-addr', free,
  '--http-addr', free, '--reader-addr', free, '--admin-addr', free], { cwd: directory, env: { PATH }, stdio: ['ignore', 'pipe', 'pipe'] });
for (const stream of [dev.stdout, dev.stderr]) stream.on('data', (text) => log.push(text));
const ended = new Promise((resolve) => dev.on('close', resolve));

let browser;
try {
  while (!existsSync(ready)) {
    if (dev.exitCode !== null || left() === 1) throw new Error(`kudos dev is not ready:\n${log.join('')}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  said('kudos dev ready');
  const at = JSON.parse(readFileSync(ready, 'utf8'));
  process.env.KUDOS_READER = `http://${at.reader}`;
  process.env.KUDOS_PRODUCER = `http://${at.http}`;
  const { launch, open, text } = await import('./driver.mjs'); // reads these variables
  browser = await launch();
  const page = await open(browser, '#post=42');
  await text(page, '#status', 'live', left());
  await text(page, '#post-likes', '0', left());
  await page.click('#like');
  await text(page, '#post-likes', '1', left());
  said('like seen in the browser');
} finally {
  await browser?.close();
  dev.kill('SIGTERM');
  const killed = setTimeout(() => dev.kill('SIGKILL'), 20_000);
  await ended;
  clearTimeout(killed);
  rmSync(directory, { recursive: true });
}
