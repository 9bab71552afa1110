// The page's state, in the URL: #post=42&region=DE&window=1h. So views can be linked to, and
// the back button works.

/** route is the state in the URL: post, region and window, each optional. */
export const route = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** linkTo returns the hash with changes. */
export function linkTo(changes) {
  const { post, region, window } = { ...route(), ...changes };
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries({ post, region, window })) if (value) query.set(key, value);
  return `#${query}`;
}

/** replaceRoute changes the URL without a history entry. */
export const replaceRoute = (changes) => history.replaceState(null, '', linkTo(changes));
