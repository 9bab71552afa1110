// Headline: total likes, rates, and the lag behind Kafka. It polls /v1/stats every second;
// rates are differences between consecutive responses.

import { ApiError, get } from './api.js';
import { rateChart } from './charts.js';
import { byId, reducedMotion, setText, whileVisible } from './dom.js';
import { counted, duration, number, signed } from './format.js';

const every = 1_000; // ms
const seconds = 180; // range of the chart
const meanOf = 3; // samples
/** Above this lag, the reader is catching up. It measures lag once per second. */
const lateFrom = 3_000; // ms

export class Headline {
  #status;
  #before = null; // last response and its time
  #latest = []; // last rates, to average
  #points = []; // { at, events, likes }, at in s; rates null: unknown
  #chart;
  #total = new Rolling(byId('total'));

  constructor(status) {
    this.#status = status;
    this.#chart = rateChart(byId('rate-chart'), seconds, (index) => this.#read(index));
  }

  start() {
    whileVisible(() => this.#turn(), () => every);
  }

  async #turn() {
    try {
      this.#show(await get('/v1/stats', {}, { timeout: 5_000 }), performance.now());
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#before = null;
      this.#point(null, null);
      const answered = error.is('not-ready');
      this.#status.set('stats', answered ? 'not ready' : 'reconnecting');
      setText(byId('lag'), '–');
      setText(byId('lag-note'), answered ? `not ready: ${error.message}` : error.message);
    }
  }

  #show(stats, at) {
    const before = this.#before;
    this.#before = { stats, at };
    this.#total.to(stats.likes);
    setText(byId('posts'), number(stats.posts));
    setText(byId('total-note'), stats.likes === 0 && stats.posts === 0
      ? 'No likes yet: send the first one below.'
      : 'Each user counts once per post, however many events arrive.');
    this.#showLag(stats);
    // Another reader may respond, or this one after a restart, with fewer events.
    if (!before || stats.events < before.stats.events) return this.#point(null, null);
    const elapsed = (at - before.at) / 1000;
    this.#point((stats.events - before.stats.events) / elapsed, (stats.likes - before.stats.likes) / elapsed);
  }

  #showLag({ lag_ms: lag, events_behind: behind, partitions, transactions }) {
    const waiting = partitions.filter((partition) => !partition.ready).length;
    const state = waiting ? 'not ready' : lag > lateFrom ? 'catching up' : 'live';
    this.#status.set('stats', state);
    setText(byId('lag'), lag < 0 ? 'unknown' : behind === 0 ? 'none' : duration(lag));
    const events = `${counted(behind, 'event')} behind`;
    setText(byId('lag-note'), waiting
      ? `${waiting} of ${partitions.length} partitions not ready`
      : transactions.some((at) => at.open_ms > 60_000) ? 'an open transaction hides new events: see Health'
      : lag < 0 ? '' : behind === 0 ? (state === 'live' ? 'live: all events in Kafka are included' : state) : `${state}: ${events}`);
  }

  /** point adds a moving average to the chart, because events arrive in batches. */
  #point(eventsRate, likesRate) {
    this.#latest = eventsRate === null ? [] : [...this.#latest, { eventsRate, likesRate }].slice(-meanOf);
    const mean = (key) => (this.#latest.length ? this.#latest.reduce((sum, one) => sum + one[key], 0) / this.#latest.length : null);
    const [eventsNow, likesNow] = [mean('eventsRate'), mean('likesRate')];
    this.#points.push({ at: Date.now() / 1000, events: eventsNow, likes: likesNow });
    this.#points = this.#points.slice(-seconds - 2);
    this.#chart.show([this.#points.map((p) => p.at), this.#points.map((p) => p.events), this.#points.map((p) => p.likes)]);
    setText(byId('events-rate'), eventsNow === null ? '–' : number(eventsNow));
    setText(byId('likes-rate'), likesNow === null ? '–' : signed(likesNow));
    byId('rate-chart').setAttribute('aria-label', likesNow === null
      ? 'Chart of likes and events per second: no current data'
      : `Chart of likes and events per second, last 3 minutes. Now ${signed(likesNow)} likes and ${number(eventsNow)} events per second`);
  }

  #read(index) {
    const point = index === null ? null : this.#points[index];
    setText(byId('rate-readout'), point?.likes == null
      ? 'Last 3 minutes: net likes and events per second'
      : `${new Date(point.at * 1000).toLocaleTimeString()}: ${signed(point.likes)} likes per second, ${number(point.events)} events per second`);
  }
}

/** Rolling animates a number until its next value is due. */
class Rolling {
  #element;
  #shown = null;
  #frame = 0;

  constructor(element) {
    this.#element = element;
  }

  to(value) {
    cancelAnimationFrame(this.#frame);
    const [from, began] = [this.#shown, performance.now()];
    const step = (now) => {
      const part = from === null || reducedMotion() ? 1 : Math.min(1, Math.max(0, (now - began) / every));
      this.#shown = part === 1 ? value : Math.round(from + (value - from) * part);
      const text = number(this.#shown);
      setText(this.#element, text);
      this.#element.parentElement.style.setProperty('--characters', String(Math.max(text.length, 7)));
      if (part < 1) this.#frame = requestAnimationFrame(step);
    };
    step(began);
  }
}
