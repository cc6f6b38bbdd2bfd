// The sent and received events of a call, for developers of clients.

/** @import { ClientEvent } from "./types/events.js" */
/** @import { CallEvent } from "./call.js" */

/** @typedef {{ at: string, direction: "sent" | "received", event: object }} KeptEvent */
/** @typedef {{ type: string, direction: string, events: string[], times: number, count: HTMLElement }} LogEntry */

/** Largest number of lines, and of events in one line; the oldest are dropped. */
const MAX_LINES = 400;
const MAX_EVENTS = 50;
/** Largest number of events to copy or save; the oldest are dropped. */
const MAX_KEPT = 5000;
/** Limit of a text's length; of a longer one, mostly audio, only the length is shown. */
const MAX_TEXT = 2000;

export class EventLog {
  #list;
  #filter;
  /** @type {LogEntry | null} */
  #last = null;
  /** @type {KeptEvent[]} */
  #kept = [];

  /** @param {HTMLElement} panel holds a list `ol`, a filter `input` and a button `.empty` */
  constructor(panel) {
    this.#list = /** @type {HTMLOListElement} */ (panel.querySelector("ol"));
    this.#filter = /** @type {HTMLInputElement} */ (panel.querySelector("input"));
    this.#filter.addEventListener("input", () => {
      for (const item of this.#list.children) this.#match(/** @type {HTMLElement} */ (item));
    });
    panel.querySelector(".empty")?.addEventListener("click", () => {
      this.#list.replaceChildren();
      [this.#last, this.#kept] = [null, []];
    });
  }

  /** Returns the events to copy or save, the oldest first; long texts, mostly audio, are left out of them. */
  get events() {
    return this.#kept;
  }

  /**
   * Adds an event. Successive events of one type share a line.
   *
   * @param {"sent" | "received"} direction
   * @param {ClientEvent | CallEvent} event
   */
  add(direction, event) {
    const { type } = event;
    const text = written(event);
    this.#kept.push({ at: new Date().toISOString(), direction, event: JSON.parse(text) });
    if (this.#kept.length > MAX_KEPT) this.#kept.shift();
    if (this.#last?.type === type && this.#last.direction === direction) {
      this.#last.events.push(text);
      if (this.#last.events.length > MAX_EVENTS) this.#last.events.shift();
      this.#last.times += 1;
      this.#last.count.textContent = `× ${this.#last.times}`;
      return;
    }
    const count = span("count", "");
    const item = document.createElement("li");
    item.className = direction;
    item.dataset.type = type;
    const [details, summary] = [document.createElement("details"), document.createElement("summary")];
    const arrow = span("arrow", direction === "sent" ? "↑" : "↓");
    arrow.setAttribute("aria-label", direction);
    arrow.setAttribute("role", "img");
    summary.append(span("at", clock()), arrow, span("type", type), count);
    details.append(summary);
    item.append(details);
    const entry = { type, direction, events: [text], times: 1, count };
    details.addEventListener("toggle", () => {
      details.querySelector("pre")?.remove();
      if (details.open) details.append(block(entry.events.join("\n")));
    });
    this.#match(item);
    this.#list.append(item);
    if (this.#list.children.length > MAX_LINES) this.#list.firstElementChild?.remove();
    this.#last = entry;
  }

  /** @param {HTMLElement} item */
  #match(item) {
    item.hidden = !item.dataset.type?.includes(this.#filter.value.trim());
  }
}

/** @param {object} event */
function written(event) {
  /** @type {(key: string, value: unknown) => unknown} */
  const short = (_, value) => (typeof value === "string" && value.length > MAX_TEXT ? `(${value.length} characters)` : value);
  return JSON.stringify(event, short, 2);
}

/** @param {string} text */
function block(text) {
  const pre = Object.assign(document.createElement("pre"), { textContent: text });
  // Focusable, so that the keyboard can scroll it.
  pre.tabIndex = 0;
  return pre;
}

function clock() {
  return new Date().toISOString().slice(11, 23);
}

/**
 * @param {string} name class
 * @param {string} text
 */
function span(name, text) {
  return Object.assign(document.createElement("span"), { className: name, textContent: text });
}
