// Server-Sent Events, https://html.spec.whatwg.org/multipage/server-sent-events.html.

export type ServerSentEvent = { id: string; event: string; data: string };

/** EventParser parses a stream that arrives in pieces of any size. */
export class EventParser {
  retryMs: number | undefined; // the last field retry
  #rest = ""; // an incomplete line
  #afterCR = false; // a line feed that comes next belongs to the end of the previous line
  #id = "";
  #event = "";
  #data: string[] = [];

  /** push returns the events that text completes. */
  push(text: string): ServerSentEvent[] {
    if (text === "") return [];
    const lines = (this.#rest + (this.#afterCR ? text.replace(/^\n/, "") : text)).split(/\r\n|\r|\n/);
    this.#afterCR = text.endsWith("\r");
    this.#rest = lines.pop()!;
    return lines.flatMap((line) => this.#line(line));
  }

  #line(line: string): ServerSentEvent[] {
    if (line === "") {
      const [event, data] = [this.#event || "message", this.#data];
      [this.#event, this.#data] = ["", []];
      return data.length > 0 ? [{ id: this.#id, event, data: data.join("\n") }] : [];
    }
    const [, name, value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line)!; // the name of a comment is ""
    if (name === "event") this.#event = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    return [];
  }
}
