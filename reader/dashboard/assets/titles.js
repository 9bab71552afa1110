// Titles and pages of posts, if the reader is configured with their URLs. Browsers fetch the titles.

const patience = 5_000; // ms
const retryAfter = 60_000; // ms
const mostTitles = 2_000;
const longest = 200; // characters

let settings = {};
const titles = new Map(); // post id → promise

/** configure sets post_url and title_url, each with {post_id}, or ''. */
export function configure(found) {
  settings = found;
}

const fill = (template, id) => (template ? template.replaceAll('{post_id}', id) : '');

/** pageOf returns the URL of a post's page, or ''. */
export const pageOf = (id) => fill(settings.post_url, id);

/** titleOf resolves with a post's title, or '' if it has none or cannot be fetched. */
export function titleOf(id) {
  if (!settings.title_url) return Promise.resolve('');
  if (!titles.has(id)) {
    if (titles.size >= mostTitles) titles.clear();
    titles.set(id, fetchTitle(id).catch(() => {
      setTimeout(() => titles.delete(id), retryAfter);
      return '';
    }));
  }
  return titles.get(id);
}

async function fetchTitle(id) {
  const response = await fetch(fill(settings.title_url, id), { credentials: 'omit', signal: AbortSignal.timeout(patience) });
  if (response.status === 404) return '';
  if (!response.ok) throw new Error(`the response was ${response.status}`);
  const { title } = await response.json();
  return typeof title === 'string' ? title.slice(0, longest) : '';
}
