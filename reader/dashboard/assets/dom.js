// DOM helpers. They insert text as text nodes, never as HTML.

export const byId = (id) => document.getElementById(id);

/** element creates one: element('td', { class: 'x' }, 'text', child…). */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** setText skips unchanged text: a screen reader may be reading it. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export const reducedMotion = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

const saying = 2_000; // ms until the next announcement may replace one
const mostWaiting = 3;
const waiting = [];
let said = 0; // timer id

/** announce queues text for screen readers (ARIA live region). */
export function announce(text) {
  waiting.push(text);
  if (waiting.length > mostWaiting) waiting.shift();
  if (!said) sayNext();
}

function sayNext() {
  const text = waiting.shift();
  said = text === undefined ? 0 : setTimeout(sayNext, saying);
  if (text !== undefined) setText(byId('announcer'), text);
}

/** politely returns a throttled announce: at most one text in ms milliseconds, the newest. */
export function politely(ms) {
  let last = -Infinity;
  let timer = 0;
  return (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      last = performance.now();
      announce(text);
    }, Math.max(0, last + ms - performance.now()));
  };
}

/** fillSelect leaves unchanged options in place: the list may be open. */
export function fillSelect(select, options, chosen) {
  const now = [...select.options].map((option) => option.value).join();
  if (now !== options.map(([value]) => value).join()) {
    select.replaceChildren(...options.map(([value, text]) => element('option', { value }, text)));
  }
  select.value = chosen;
}

/** fillSegments leaves unchanged radio buttons in place: one may have focus. */
export function fillSegments(fieldset, name, options, chosen, onChoose) {
  const now = [...fieldset.querySelectorAll('input')].map((input) => input.value).join();
  if (now !== options.map(([value]) => value).join()) {
    fieldset.querySelectorAll('label').forEach((label) => label.remove());
    for (const [value, text] of options) {
      const input = element('input', { type: 'radio', name, value });
      input.addEventListener('change', () => onChoose(value));
      fieldset.append(element('label', {}, input, element('span', {}, text)));
    }
  }
  for (const input of fieldset.querySelectorAll('input')) input.checked = input.value === chosen;
}

/** whileVisible repeats work while the page is visible, `pause()` ms after its promise settles. */
export function whileVisible(work, pause) {
  let timer = 0;
  let busy = false;
  const turn = async () => {
    clearTimeout(timer);
    if (busy || document.hidden) return;
    busy = true;
    try {
      await work();
    } finally {
      busy = false;
      timer = setTimeout(turn, pause());
    }
  };
  document.addEventListener('visibilitychange', turn);
  turn();
  return turn;
}
