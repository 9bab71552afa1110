// The page's state, in the URL: #post=42&region=DE&window=1h, or #page=health. So views can be linked to, and
// the back button works.

/** route is the state in the URL; each part of it is optional. */
export const route = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** linkTo returns the hash with changes. */
export function linkTo(changes) {
  const state = { ...route(), ...changes };
  const query = new URLSearchParams();
  for (const key of ['page', 'post', 'compare', 'region', 'window', 'range']) if (state[key]) query.set(key, state[key]);
  return `#${query}`;
}

/** replaceRoute changes the URL without a history entry. */
export const replaceRoute = (changes) => history.replaceState(null, '', linkTo(changes));
