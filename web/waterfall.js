// Waterfall of a turn: the stages from the end of the caller's voice to the first sound, on this page's clock.

/** @typedef {{ name: string, from: number, to: number }} WaterfallStage from and to are in ms since the begin */

/** Stages in order: the mark that ends each, and its label. */
const STAGES = [
  { mark: "ended", name: "Endpointing" },
  { mark: "created", name: "Response created" },
  { mark: "worded", name: "First word" },
  { mark: "sent", name: "First sound left the server" },
  { mark: "heard", name: "First sound heard" },
];

/** Collects the end times of one turn's stages, in ms of performance.now(). */
export class Marks {
  #begun;
  /** @type {Map<string, number>} */
  #marks = new Map();

  /** @param {number} begun end of the caller's voice, or time of the written message */
  constructor(begun) {
    this.#begun = begun;
  }

  /** Sets the mark; only the first time counts. @param {string} name */
  mark(name, at = performance.now()) {
    if (!this.#marks.has(name)) this.#marks.set(name, at);
  }

  /** Returns the stages. A stage whose event came after a later one has no duration. */
  stages() {
    const end = this.#marks.get("heard") ?? Infinity;
    let from = 0;
    return STAGES.flatMap(({ mark, name }) => {
      const at = this.#marks.get(mark);
      if (at === undefined) return [];
      const to = Math.max(from, Math.min(at, end) - this.#begun);
      const stage = { name, from: Math.round(from), to: Math.round(to) };
      from = to;
      return [stage];
    });
  }
}

/**
 * Shows the stages as bars below one another; replaces the earlier ones.
 *
 * @param {HTMLElement} details
 * @param {WaterfallStage[]} stages
 */
export function showWaterfall(details, stages) {
  details.querySelector(".waterfall")?.remove();
  const whole = Math.max(1, stages.at(-1)?.to ?? 1);
  const list = document.createElement("ol");
  list.className = "waterfall";
  for (const { name, from, to } of stages) {
    const item = document.createElement("li");
    const label = Object.assign(document.createElement("span"), { textContent: name });
    const bar = Object.assign(document.createElement("span"), { className: "stage" });
    bar.style.setProperty("--from", String(from / whole));
    bar.style.setProperty("--share", String((to - from) / whole));
    const time = Object.assign(document.createElement("span"), { className: "took", textContent: `${to - from} ms` });
    item.append(label, bar, time);
    list.append(item);
  }
  details.append(list);
}
