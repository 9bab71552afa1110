// The page's two kinds of charts, on uPlot (window.uPlot, a plain script). Their colours
// are those of the theme, also when it changes.

import { compact, dayOf, timeOfDay } from './format.js';

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Chart holds a uPlot in an element: as wide as it, drawn anew in other colours with another theme. */
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
    new ResizeObserver(() => this.#plot.setSize(this.#size())).observe(element);
  }

  /** show new data; options anew if what they depend on has changed. */
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

/** gradient from a colour to nothing, downwards. */
function fade(plot, from) {
  if (!plot.bbox.height) return 'transparent';
  const gradient = plot.ctx.createLinearGradient(0, plot.bbox.top, 0, plot.bbox.top + plot.bbox.height);
  gradient.addColorStop(0, `${from}55`);
  gradient.addColorStop(1, `${from}00`);
  return gradient;
}

const yAxis = () => ({
  side: 1, size: 44, gap: 6, font, stroke: color('--ink-2'), ticks: { show: false }, space: 36,
  grid: { stroke: color('--line'), width: 1 },
  values: (_, values) => values.map((value) => (Number.isInteger(value) || Math.abs(value) >= 10 ? compact(value) : '')),
});

const xAxis = (values) => ({
  size: 24, gap: 6, font, stroke: color('--ink-2'), ticks: { show: false }, grid: { show: false }, space: 72, values,
});

/** From 0 (or below, if values are) with room above; never a scale of nothing. */
const fromZero = (_, min, max) => [Math.min(0, min ?? 0) * 1.1, Math.max(4, (max ?? 0) * 1.15)];

const cursor = () => ({ y: false, drag: { x: false, y: false }, points: { size: 7 } });

/**
 * rateChart shows the last minutes, a point a second.
 * @param {(index: number|null) => void} onPoint told what is pointed at
 */
export function rateChart(element, seconds, onPoint) {
  const ago = (_, values) => {
    const now = Date.now() / 1000;
    return values.map((at) => (now - at < 5 ? 'now' : now - at < 60 ? `${Math.round(now - at)} s` : `${Math.floor((now - at) / 60)}:${String(Math.floor((now - at) % 60)).padStart(2, '0')} ago`));
  };
  return new Chart(element, () => ({
    padding: [8, 0, 0, 0], legend: { show: false }, cursor: cursor(),
    scales: { x: { range: () => [Date.now() / 1000 - seconds, Date.now() / 1000] }, y: { range: fromZero } },
    axes: [{ ...xAxis(ago), splits: () => [150, 120, 90, 60, 30].map((s) => Date.now() / 1000 - s) }, yAxis()],
    series: [
      {},
      { stroke: color('--second'), width: 1.5, points: { show: false } },
      { stroke: color('--accent'), width: 2, fill: (plot) => fade(plot, color('--accent')), points: { show: false } },
    ],
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)] },
  }), [[], [], []]);
}

/** barChart shows a bar for each hour or day (UTC); the last one is not over. */
export function barChart(element, interval, onPoint) {
  const label = (_, values) => values.map((at) => {
    const date = new Date(at * 1000);
    return interval() === 'day' || timeOfDay(date) === '00:00' ? dayOf(date) : timeOfDay(date);
  });
  return new Chart(element, () => ({
    padding: [8, 0, 0, 0], legend: { show: false }, cursor: { ...cursor(), points: { show: false } },
    tzDate: (seconds) => window.uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    scales: { y: { range: fromZero }, x: { range: (_, min, max) => { const half = (interval() === 'day' ? 86_400 : 3_600) / 2; return [min - half, max + half]; } } },
    axes: [xAxis(label), yAxis()],
    series: [{}, { fill: color('--accent'), stroke: color('--accent'), width: 0, points: { show: false }, paths: window.uPlot.paths.bars({ size: [0.72, 48], radius: 0.15 }) }],
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)] },
  }), [[], []]);
}
