// Small help with the document. Text goes in as text, never as HTML.

export const byId = (id) => document.getElementById(id);

/** element makes one: element('td', { class: 'x' }, 'text', child…). */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** setText leaves alone what is so already: a screen reader may be reading it. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export const reducedMotion = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

const saying = 2_000; // ms that an announcement stands, before the next one takes its place
const mostWaiting = 3;
const waiting = [];
let said = 0; // timer

/** announce has a screen reader say something when it has a moment. */
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

/** politely announces at most once in so many ms, and then what is newest. */
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

/** fillSelect gives a select its options, keeping what is chosen. */
export function fillSelect(select, options, chosen) {
  const now = [...select.options].map((option) => option.value).join();
  if (now !== options.map(([value]) => value).join()) {
    select.replaceChildren(...options.map(([value, text]) => element('option', { value }, text)));
  }
  select.value = chosen;
}

/** fillSegments makes a radio button of each option; onChoose gets the value. */
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

/** whileVisible calls work, which returns a promise, again and again while somebody looks: `pause()` ms after each end. */
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
