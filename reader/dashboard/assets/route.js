// What the page shows, in its address: #post=42&region=DE&window=1h. So a view can be
// linked to, and the back button works.

/** route is what the address says now: post, region, window, each possibly missing. */
export const route = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** linkTo is the address with changes. */
export function linkTo(changes) {
  const { post, region, window } = { ...route(), ...changes };
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries({ post, region, window })) if (value) query.set(key, value);
  return `#${query}`;
}

/** replaceRoute changes the address without a step in the history. */
export const replaceRoute = (changes) => history.replaceState(null, '', linkTo(changes));
