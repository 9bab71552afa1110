// Likes over time, of a range and region: of all posts (from MySQL), or of one or two posts (from the reader's history).

import { ApiError, address, get } from './api.js';
import { barChart } from './charts.js';
import { download } from './csv.js';
import { byId, element, fillSegments, fillSelect, setText, whileVisible } from './dom.js';
import { counted, dayOf, number, regionName, secondsOfDay, sortRegions, timeOfDay } from './format.js';

const every = 15_000; // ms
const hour = 3_600_000; // ms
const ranges = { '1h': [1, '1 h'], '24h': [24, '24 h'], '7d': [7 * 24, '7 days'], '30d': [30 * 24, '30 days'], '90d': [90 * 24, '90 days'] };
const mostHours = 7 * 24; // longer ranges are by day

export class History {
  #id; // prefix of the elements' ids
  #subjects;
  #region = 'global';
  #range;
  #parts = []; // what is shown: { name, points } of each subject
  #shown = ''; // the question whose answer that is
  #chart = null;
  #asked = 0; // responses to older requests are ignored
  #loaded = null; // when the answer came
  #inView = false;
  #none = false; // the reader keeps no history: there is no need to ask again

  /**
   * @param {string} id prefix of the elements' ids
   * @param {string} range chosen at first
   * @param {() => {name: string, path: string}[]} subjects one or two, or none: nothing to show
   */
  constructor(id, range, subjects) {
    this.#id = id;
    this.#range = range;
    this.#subjects = subjects;
    this.#at('region').addEventListener('change', (event) => {
      this.#region = event.target.value;
      this.load();
    });
    this.#at('details').addEventListener('toggle', () => this.#drawTable());
    this.#at('csv').addEventListener('click', () => this.#download());
    this.regions([]);
    fillSegments(this.#at('ranges'), `${id}-range`, Object.entries(ranges).map(([key, [, name]]) => [key, name]), range, (chosen) => {
      this.#range = chosen;
      this.load();
    });
  }

  /** start loads whenever the panel comes into view, and repeatedly while it is there. */
  start() {
    whileVisible(() => this.load(), () => every);
    new IntersectionObserver((entries) => {
      this.#inView = entries.at(-1).isIntersecting;
      this.load();
    }).observe(this.#at('panel'));
  }

  /** regions to offer: those with rankings, since they have likes. */
  regions(codes) {
    const all = sortRegions(new Set(['global', this.#region, ...codes]));
    fillSelect(this.#at('region'), all.map((code) => [code, regionName(code)]), this.#region);
  }

  async load() {
    const subjects = this.#subjects();
    const asked = ++this.#asked;
    if (!subjects.length) return;
    const interval = this.#interval();
    const step = interval === 'day' ? 24 * hour : hour;
    const from = new Date(Math.floor((Date.now() - ranges[this.#range][0] * hour) / step) * step).toISOString();
    const query = { region: this.#region, interval, from };
    const question = JSON.stringify([subjects, this.#region, this.#range]);
    // Before it is in view, or this line would move what is below when it comes.
    setText(this.#at('source'), `GET ${address(subjects[0].path, query)}`);
    if (!this.#inView || this.#none) return;
    try {
      const answers = await Promise.all(subjects.map(({ path }) => get(path, query)));
      if (asked !== this.#asked) return;
      this.#shown = question;
      this.#loaded = new Date();
      this.#show(subjects.map(({ name }, i) => ({ name, points: answers[i].points })));
      const whole = answers.map((answer) => answer.complete_from).filter((since) => since > from).sort().pop();
      setText(this.#at('note'), whole ? `Complete since ${this.#label({ from: whole })} UTC: this reader has nothing earlier.` : '');
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (asked !== this.#asked) return;
      this.#none = error.is('no-history');
      // The answer to the same question stays visible, with its time.
      const same = this.#shown === question;
      this.#at('body').hidden = !same;
      setText(this.#at('note'), `Not available now: ${error.message}${same ? ` As of ${secondsOfDay(this.#loaded)}.` : ''}`);
    }
  }

  #at(name) {
    return byId(`${this.#id}-${name}`);
  }

  #interval() {
    return ranges[this.#range][0] > mostHours ? 'day' : 'hour';
  }

  #show(parts) {
    this.#parts = parts;
    this.#at('body').hidden = false;
    const [{ points }, other] = parts;
    this.#chart ??= barChart(this.#at('chart'), () => this.#interval(), (index) => this.#read(index));
    this.#chart.show([points.map((point) => Date.parse(point.from) / 1000), points.map((point) => point.likes),
      points.map((_, i) => other?.points[i]?.likes ?? null)]);
    this.#read(null);
    this.#drawTable();
    this.#at('chart').setAttribute('aria-label', `Chart: ${this.#summary()}. The table below has the same data.`);
  }

  #summary() {
    const sums = this.#parts.map(({ name, points }) => `${name}: ${counted(points.reduce((sum, point) => sum + point.likes, 0), 'like')}`);
    return `${sums.join(' · ')} in the last ${ranges[this.#range][1]}, ${regionName(this.#region)}; by event time, UTC; `
      + 'withdrawn likes are subtracted where they were counted';
  }

  #read(index) {
    const at = this.#parts[0]?.points[index];
    const all = this.#parts.map(({ name, points }) => `${name}: ${counted(points[index]?.likes ?? 0, 'like')}, ${counted(points[index]?.dislikes ?? 0, 'dislike')}`);
    setText(this.#at('readout'), at ? `${this.#label(at)} · ${all.join(' · ')}` : this.#summary());
  }

  #label({ from }) {
    const date = new Date(from);
    return this.#interval() === 'day' ? dayOf(date) : `${dayOf(date)}, ${timeOfDay(date)}`;
  }

  /** Newest first; only while the table is open. */
  #drawTable() {
    if (!this.#at('details').open || !this.#parts.length) return;
    const names = this.#parts.length > 1 ? this.#parts.map(({ name }) => `, ${name}`) : [''];
    this.#at('heads').replaceChildren(...['From (UTC)', ...names.flatMap((name) => [`Likes${name}`, `Dislikes${name}`])]
      .map((head) => element('th', { scope: 'col' }, head)));
    this.#at('rows').replaceChildren(...this.#parts[0].points.map((point, i) => element('tr', {},
      element('th', { scope: 'row' }, this.#label(point)), ...this.#cells(i).map((n) => element('td', {}, number(n))))).reverse());
  }

  #cells(i) {
    return this.#parts.flatMap(({ points }) => [points[i]?.likes ?? 0, points[i]?.dislikes ?? 0]);
  }

  #download() {
    if (!this.#parts.length) return;
    const heads = this.#parts.flatMap(({ name }) => [`likes, ${name}`, `dislikes, ${name}`]);
    download(`${this.#id}-${this.#region}-${this.#range}`, [['from', ...heads],
      ...this.#parts[0].points.map((point, i) => [point.from, ...this.#cells(i)])]);
  }
}
