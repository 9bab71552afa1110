// <kudos-button post="42" user="7" producer="https://…" reader="https://…"></kudos-button>

import { type ClientOptions, KudosClient } from "./client.js";
import { Feed } from "./feed.js";
import { ButtonModel } from "./model.js";
import type { Shown } from "./state.js";

const css = `
:host { display: inline-block }
:host([hidden]) { display: none }
button {
  display: inline-flex; align-items: center; justify-content: center; gap: var(--kudos-gap, .4em); min-width: 44px; min-height: 44px;
  padding: var(--kudos-padding, .3em .8em); border: var(--kudos-border, 1px solid); border-radius: var(--kudos-radius, 2em);
  background: var(--kudos-background, none); color: var(--kudos-color, inherit); font: inherit; cursor: pointer;
}
button[aria-pressed=true] { background: var(--kudos-liked-background, none); color: var(--kudos-liked-color, #c2185b) }
button[aria-disabled=true] { cursor: not-allowed }`;

let defaults: ClientOptions = { retryForMs: 10_000 }; // a user waits
const clients: Record<string, KudosClient> = {};
const feeds: Record<string, Feed> = {};

/** configure sets options of all buttons, such as token. Call it before the first button is on the page. */
export function configure(options: Omit<ClientOptions, "producerUrl" | "readerUrl">): void {
  defaults = { ...defaults, ...options };
}

const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement; // a server that renders pages has none

/**
 * KudosButton likes a post, and shows its count live. Attributes: post, producer, reader; user, unless nobody is signed
 * in; optional region, and label with {count}. Parts: button, icon, count, liked. Event: kudos-error, with the error as
 * detail.
 */
export class KudosButton extends Base {
  static readonly observedAttributes = ["post", "user", "producer", "reader", "region", "label"];
  #model: ButtonModel | undefined;
  #parts: { button: HTMLButtonElement; icon: HTMLElement; count: HTMLElement } | undefined;
  #planned = false;

  /** What the button shows: likes, undefined until they are known, and the user's reaction. */
  get shown(): Shown { return this.#model?.shown ?? { likes: undefined, reaction: "NONE" }; }

  connectedCallback(): void { this.#plan(); }
  disconnectedCallback(): void { this.#plan(); }
  attributeChangedCallback(name: string, before: string | null, after: string | null): void {
    if (name === "label" && this.#parts) this.#render();
    else if (before !== after) this.#plan();
  }

  /** plan starts over, once all attributes are set. */
  #plan(): void {
    if (!this.#planned) queueMicrotask(() => this.#start());
    this.#planned = true;
  }

  #start(): void {
    this.#planned = false;
    this.#model?.close();
    this.#model = undefined;
    const attribute = (name: string) => this.getAttribute(name) || undefined;
    const [post, user, producerUrl, readerUrl] = ["post", "user", "producer", "reader"].map(attribute);
    if (!this.isConnected) return;
    try {
      const client = clients[`${producerUrl} ${readerUrl}`] ??= new KudosClient({ ...defaults, producerUrl, readerUrl });
      const feed = feeds[`${readerUrl} ${user}`] ??= new Feed(client, user);
      this.#model = new ButtonModel({
        client, feed, post: post ?? "", user, region: attribute("region"), changed: () => this.#render(), failed: (error) => this.#failed(error),
      });
    } catch (error) {
      this.#failed(error); // post is not an id
    }
    this.#render();
  }

  #build() {
    const root = this.attachShadow({ mode: "open", delegatesFocus: true });
    const sheet = new CSSStyleSheet(); // unlike a style element, allowed by every Content-Security-Policy
    sheet.replaceSync(css);
    root.adoptedStyleSheets = [sheet];
    const [button, icon, count] = [document.createElement("button"), document.createElement("span"), document.createElement("span")];
    [button.type, icon.part.value, count.part.value] = ["button", "icon", "count"]; // keys, focus and role are the browser's
    button.append(icon, count);
    button.addEventListener("click", () => void this.#model?.toggle());
    root.append(button);
    return { button, icon, count };
  }

  #render(): void {
    const { button, icon, count } = this.#parts ??= this.#build();
    const { likes, reaction } = this.shown;
    const liked = reaction === "LIKE";
    const locale = this.closest<HTMLElement>("[lang]")?.lang || undefined;
    const exact = likes?.toLocaleString(locale) ?? "";
    const label = likes === undefined ? "Like" : `Like, ${exact} ${likes === 1 ? "like" : "likes"}`;
    icon.textContent = liked ? "♥" : "♡";
    count.textContent = likes?.toLocaleString(locale, { notation: "compact" }) ?? "";
    button.part.value = liked ? "button liked" : "button";
    button.setAttribute("aria-label", this.getAttribute("label")?.replaceAll("{count}", exact) ?? label);
    button.setAttribute("aria-pressed", String(liked));
    button.setAttribute("aria-disabled", String(!this.getAttribute("user") || !this.getAttribute("producer")));
  }

  #failed(detail: unknown): void { this.dispatchEvent(new CustomEvent("kudos-error", { detail, bubbles: true, composed: true })); }
}

globalThis.customElements?.define("kudos-button", KudosButton);

declare global {
  interface HTMLElementTagNameMap { "kudos-button": KudosButton }
}
