// Likes over time, by hour or day and region. The reader queries MySQL for them.

import { ApiError, address, get } from './api.js';
import { barChart } from './charts.js';
import { byId, element, fillSegments, fillSelect, setText, whileVisible } from './dom.js';
import { counted, dayOf, number, regionName, timeOfDay } from './format.js';
import { sortRegions } from './trending.js';

const every = 15_000; // ms

export class History {
  #region = 'global';
  #interval = 'hour';
  #points = [];
  #shown = ''; // query of #points
  #chart = null;
  #asked = 0; // responses to older requests are ignored

  constructor() {
    byId('history-region').addEventListener('change', (event) => {
      this.#region = event.target.value;
      this.#load();
    });
    byId('history-details').addEventListener('toggle', () => this.#drawTable());
    this.regions([]);
    this.#segments();
  }

  start() {
    whileVisible(() => this.#load(), () => every);
  }

  /** regions to offer: those with rankings, since they have likes. */
  regions(codes) {
    const all = sortRegions(new Set(['global', this.#region, ...codes]));
    fillSelect(byId('history-region'), all.map((code) => [code, regionName(code)]), this.#region);
  }

  #segments() {
    fillSegments(byId('history-intervals'), 'interval', [['hour', 'Hours'], ['day', 'Days']], this.#interval, (interval) => {
      this.#interval = interval;
      this.#load();
    });
  }

  async #load() {
    const question = ++this.#asked;
    const query = { region: this.#region, interval: this.#interval };
    setText(byId('history-source'), `GET ${address('/v1/analytics/likes', query)}`);
    try {
      const { points } = await get('/v1/analytics/likes', query);
      if (question !== this.#asked) return;
      this.#shown = address('', query);
      this.#show(points);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (question !== this.#asked) return;
      // Only this part needs MySQL. Data of the same query stays visible.
      byId('history-body').hidden = this.#shown !== address('', query);
      setText(byId('history-note'), `Not available now: ${error.message}`);
    }
  }

  #show(points) {
    this.#points = points;
    byId('history-body').hidden = false;
    const data = [points.map((point) => Date.parse(point.from) / 1000), points.map((point) => point.likes)];
    this.#chart ??= barChart(byId('history-chart'), () => this.#interval, (index) => this.#read(index));
    this.#chart.show(data);
    this.#read(null);
    this.#drawTable();
    setText(byId('history-note'), '');
    byId('history-chart').setAttribute('aria-label', `Bar chart: ${this.#summary()}. The table below has the same data.`);
  }

  #summary() {
    const total = this.#points.reduce((sum, point) => sum + point.likes, 0);
    const many = this.#points.length;
    return `${counted(total, 'like')} in the last ${many} ${this.#interval}s, ${regionName(this.#region)}; `
      + 'by event time, UTC; withdrawn likes are subtracted where they were counted';
  }

  #read(index) {
    const point = index === null ? null : this.#points[index];
    setText(byId('history-readout'), point
      ? `${this.#label(point)}: ${counted(point.likes, 'like')}, ${counted(point.dislikes, 'dislike')}`
      : this.#summary());
  }

  #label({ from }) {
    const date = new Date(from);
    return this.#interval === 'day' ? dayOf(date) : `${dayOf(date)}, ${timeOfDay(date)}`;
  }

  /** Newest first; only while the table is open. */
  #drawTable() {
    if (!byId('history-details').open) return;
    byId('history-rows').replaceChildren(...this.#points.toReversed().map((point) => element('tr', {},
      element('th', { scope: 'row' }, this.#label(point)), element('td', {}, number(point.likes)), element('td', {}, number(point.dislikes)))));
  }
}
