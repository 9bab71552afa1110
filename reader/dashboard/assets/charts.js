// Line and bar charts, drawn by uPlot (window.uPlot, a classic script) in the theme's colors.

import { compact, dayOf, number, timeOfDay } from './format.js';

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Chart is a uPlot as wide as its element. A new theme needs a redraw: canvas doesn't follow CSS. */
class Chart {
  #element;
  #options;
  #data;
  #plot = null;

  constructor(element, options, data) {
    this.#element = element;
    this.#options = options;
    this.#data = data;
    this.#draw();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#draw());
    new ResizeObserver(() => element.clientWidth && this.#plot.setSize(this.#size())).observe(element);
  }

  /** show new data; redraw also evaluates the options again. */
  show(data, redraw = false) {
    this.#data = data;
    if (redraw) this.#draw();
    else this.#plot.setData(data);
  }

  #size() {
    return { width: this.#element.clientWidth, height: this.#element.clientHeight };
  }

  #draw() {
    this.#plot?.destroy();
    this.#plot = new window.uPlot({ ...this.#size(), ...this.#options() }, this.#data, this.#element);
  }
}

const font = '12px system-ui, sans-serif';

/** fade is a gradient from a color (#rrggbb) at the top to transparent. */
function fade(plot, from) {
  if (!plot.bbox.height) return 'transparent';
  const gradient = plot.ctx.createLinearGradient(0, plot.bbox.top, 0, plot.bbox.top + plot.bbox.height);
  gradient.addColorStop(0, `${from}55`);
  gradient.addColorStop(1, `${from}00`);
  return gradient;
}

/** Tick increments of a count axis: uPlot's defaults include fractions. */
const steps = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

const yAxis = () => ({
  incrs: steps,
  side: 1, size: 44, gap: 6, font, stroke: color('--ink-2'), ticks: { show: false }, space: 36,
  grid: { stroke: color('--line'), width: 1 },
  values: (_, values) => values.map((value) => (Math.abs(value) < 10_000 ? number(value) : compact(value))),
});

const xAxis = (values) => ({
  size: 24, gap: 6, font, stroke: color('--ink-2'), ticks: { show: false }, grid: { show: false }, space: 72, values,
});

/** Includes 0 and headroom, and is never empty. */
const fromZero = (_, min, max) => [Math.min(0, min ?? 0) * 1.1, Math.max(4, (max ?? 0) * 1.15)];

const cursor = () => ({ y: false, drag: { x: false, y: false }, points: { size: 7 } });

/** lately is an x axis of the last seconds; shorter on a new page, whose chart would be almost empty. */
function lately(seconds) {
  const now = () => Date.now() / 1000;
  const began = now();
  const span = () => Math.min(seconds, Math.max(30, now() - began));
  const marks = (plot) => {
    const step = [10, 30, 60].find((s) => (span() / s) * 70 < plot.width) ?? 90;
    return Array.from({ length: Math.floor((span() * 0.95) / step) }, (_, i) => now() - (i + 1) * step).reverse();
  };
  const ago = (_, values) => values.map((at) => `${Math.round(now() - at)} s ago`);
  return { scale: { range: () => [now() - span(), now()] }, axis: () => ({ ...xAxis(ago), splits: marks }) };
}

/**
 * rateChart shows events and likes per second.
 * @param {(index: number|null) => void} onPoint called with the data index under the cursor
 */
export function rateChart(element, seconds, onPoint) {
  const x = lately(seconds);
  return new Chart(element, () => ({
    padding: [8, 0, 0, 0], legend: { show: false }, cursor: cursor(),
    scales: { x: x.scale, y: { range: fromZero } },
    axes: [x.axis(), yAxis()],
    series: [
      {},
      { stroke: color('--second'), width: 1.5, points: { show: false } },
      { stroke: color('--accent'), width: 2, fill: (plot) => fade(plot, color('--accent')), points: { show: false } },
    ],
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)] },
  }), [[], [], []]);
}

/** countChart shows a count over the last seconds. Its y axis doesn't start at 0: changes are small. */
export function countChart(element, seconds) {
  const x = lately(seconds);
  // Full numbers if compact ones collide (11.13K twice).
  const distinct = (_, values) => {
    const texts = values.map(compact);
    return new Set(texts).size === texts.length ? texts : values.map(number);
  };
  const around = (_, min, max) => [(min ?? 0) - 1, (max ?? 0) + Math.max(3, ((max ?? 0) - (min ?? 0)) * 0.15)];
  return new Chart(element, () => ({
    padding: [8, 0, 0, 0], legend: { show: false }, cursor: { show: false },
    scales: { x: x.scale, y: { range: around } },
    axes: [x.axis(), { ...yAxis(), size: 72, values: distinct }],
    series: [{}, {
      stroke: color('--accent'), width: 2, fill: (plot) => fade(plot, color('--accent')),
      points: { show: false }, paths: window.uPlot.paths.stepped({ align: 1 }),
    }],
  }), [[], []]);
}

/**
 * barChart shows a bar per hour or day (UTC), of which the last is incomplete, and a line of the same of another post.
 */
export function barChart(element, interval, onPoint) {
  const label = (_, values) => values.map((at) => {
    const date = new Date(at * 1000);
    return interval() === 'day' || timeOfDay(date) === '00:00' ? dayOf(date) : timeOfDay(date);
  });
  const half = () => (interval() === 'day' ? 86_400 : 3_600) / 2; // s
  return new Chart(element, () => ({
    padding: [8, 0, 0, 16], legend: { show: false }, cursor: { ...cursor(), points: { show: false } },
    tzDate: (seconds) => window.uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    scales: { x: { range: (_, min, max) => [min - half(), max + half()] }, y: { range: fromZero } },
    axes: [xAxis(label), yAxis()],
    series: [{}, {
      fill: color('--accent'), stroke: color('--accent'), width: 0,
      points: { show: false }, paths: window.uPlot.paths.bars({ size: [0.72, 48], radius: 0.15 }),
    }, { stroke: color('--second'), width: 2, points: { size: 6, fill: color('--second') } }],
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)] },
  }), [[], [], []]);
}
