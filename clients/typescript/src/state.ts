// What a like button shows: a pure state machine, without network or DOM.
//
// A click shows at once. Until the reader's counts cover its event, they are kept but not shown, because they may lack
// it: a count never flickers back. If the like is refused, the newest of them is shown.

import type { ManyLikes, Reaction } from "./client.js";
import type { Position } from "./http.js";

/** likes is undefined until it is known. */
export type Shown = { likes: number | undefined; reaction: Reaction };
/** Click is a reaction that the user wants, with the position of its event once that is accepted. */
export type Click = Shown & { position?: Position };
type Known<T> = { value: T; asOf: Position | undefined };

/** older compares positions. Those of different partitions have no order. */
const older = (a: Position | undefined, b: Position | undefined) =>
  a !== undefined && a.partition === b?.partition && BigInt(a.offset) < BigInt(b.offset);
/** covers reports whether a response as of a position includes an event. An offset of -1 (rare) is unknown. */
const covers = (asOf: Position | undefined, event: Position) => event.offset !== "-1" && older(event, asOf);

export class ButtonState {
  #likes: Known<number> | undefined;
  #reaction: Known<Reaction> | undefined;
  #click: Click | undefined; // until it is covered
  #epoch = "";

  get shown(): Shown {
    return this.#click ?? { likes: this.#likes?.value, reaction: this.#reaction?.value ?? "NONE" };
  }

  /** click toggles the like. */
  click(): Click {
    const { likes, reaction } = this.shown;
    const like = reaction !== "LIKE";
    return this.#click = { likes: likes === undefined ? undefined : likes + (like ? 1 : -1), reaction: like ? "LIKE" : "NONE" };
  }

  /** accepted takes the position of a click's event. */
  accepted(click: Click, position: Position): void {
    click.position = position;
    this.#settle();
  }

  /** refused takes a click back, and reports whether it was the last one. */
  refused(click: Click): boolean {
    const last = this.#click === click;
    if (last) this.#click = undefined;
    return last;
  }

  /** covered takes a response that covers an accepted click. */
  covered(click: Click, { posts: [post], as_of, reactions_as_of }: ManyLikes): void {
    const at = (list: Position[] = []) => list.find(({ partition }) => partition === click.position?.partition) ?? list[0];
    this.counted(post!.likes, at(as_of));
    this.#settle(click);
    this.reacted(post!.reaction ?? click.reaction, at(reactions_as_of));
  }

  /** counted takes counts, unless they are older than the known ones. */
  counted(likes: number, asOf: Position | undefined): void {
    if (older(asOf, this.#likes?.asOf)) return;
    this.#likes = { value: likes, asOf };
    this.#settle();
  }

  /** reacted takes the user's own reaction, unless it is older than the known one. */
  reacted(reaction: Reaction, asOf: Position | undefined): void {
    if (!older(asOf, this.#reaction?.asOf)) this.#reaction = { value: reaction, asOf };
  }

  /** epoch takes the id of a stream's event. If the log was recreated, known positions mean nothing. */
  epoch(eventId: string): void {
    const epoch = eventId.split(".")[0]!;
    if (this.#epoch && epoch !== this.#epoch) this.#likes = this.#reaction = this.#click = undefined;
    this.#epoch = epoch;
  }

  /** settle drops the click if it is the covered one, or if the counts cover it. */
  #settle(covered?: Click): void {
    const { position, reaction } = this.#click ?? {};
    if (!position || !reaction || (this.#click !== covered && !covers(this.#likes?.asOf, position))) return;
    this.#click = undefined;
    const asOf = { partition: position.partition, offset: String(BigInt(position.offset) + 1n) };
    if (!covers(this.#reaction?.asOf, position)) this.#reaction = { value: reaction, asOf };
  }
}
