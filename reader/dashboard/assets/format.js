// Formats numbers, times and names. Ids stay strings. Pure functions.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 2 });
const decimals = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const regionNames = new Intl.DisplayNames('en', { type: 'region', fallback: 'code' });

export const number = (n) => whole.format(n);
export const compact = (n) => short.format(n);
export const score = (n) => decimals.format(n);

/** counted: 1 like, 2 likes. */
export const counted = (n, thing) => `${whole.format(n)} ${thing}${n === 1 ? '' : 's'}`;

/** signed rounds, and uses the minus sign U+2212. */
export function signed(n) {
  const rounded = Math.round(n);
  return rounded > 0 ? `+${whole.format(rounded)}` : rounded < 0 ? `−${whole.format(-rounded)}` : '0';
}

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  return `${number(Math.floor(ms / 3_600_000))} h`;
}

const largestId = 2n ** 64n - 1n;

/** parseId returns the canonical decimal form, or null. Numbers are exact only up to 2^53. */
export function parseId(text) {
  const digits = text.trim();
  if (!/^\d{1,20}$/.test(digits)) return null;
  const id = BigInt(digits);
  return id > 0n && id <= largestId ? id.toString() : null;
}

export const idHint = 'An id is a whole number from 1 to 18446744073709551615.';

export function regionName(code) {
  if (code === 'global') return 'All regions';
  if (code === 'ZZ') return 'Unknown (ZZ)';
  return /^[A-Z]{2}$/.test(code) && regionNames.of(code) !== code ? `${regionNames.of(code)} (${code})` : code;
}

/** windowName of a window as in the API: 10m, 1h30m, 24h, day, all. */
export function windowName(window) {
  if (window === 'day') return 'Today';
  if (window === 'all') return 'All time';
  const [, hours, minutes] = /^(?:(\d+)h)?(?:(\d+)m)?$/.exec(window) ?? [];
  return [hours && `${hours} h`, minutes && `${minutes} min`].filter(Boolean).join(' ') || window;
}

/** windowMinutes is a sort key; day and all come last. */
export function windowMinutes(window) {
  if (window === 'day') return 1e6;
  if (window === 'all') return 2e6;
  const [, hours, minutes] = /^(?:(\d+)h)?(?:(\d+)m)?$/.exec(window) ?? [];
  return Number(hours ?? 0) * 60 + Number(minutes ?? 0);
}

const utc = (options) => new Intl.DateTimeFormat('en-GB', { ...options, timeZone: 'UTC' });
const clock = utc({ hour: '2-digit', minute: '2-digit' });
const calendar = utc({ day: 'numeric', month: 'short' });

export const timeOfDay = (date) => clock.format(date);
export const dayOf = (date) => calendar.format(date);
export const secondsOfDay = (date) => date.toLocaleTimeString('en-GB');

/** sortRegions: global first, unknown (ZZ) last. */
export function sortRegions(regions) {
  const place = (code) => (code === 'global' ? 0 : code === 'ZZ' ? 2 : 1);
  return [...regions].sort((a, b) => place(a) - place(b) || regionName(a).localeCompare(regionName(b)));
}
