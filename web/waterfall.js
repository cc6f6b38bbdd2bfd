// Waterfall of a turn: the stages from the end of the caller's voice to the first sound, on this page's clock.

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
  #marks = new Map();

  /** @param {number} begun end of the caller's voice, or time of the written message */
  constructor(begun) {
    this.#begun = begun;
  }

  /** Sets the mark; only the first time counts. */
  mark(name, at = performance.now()) {
    if (!this.#marks.has(name)) this.#marks.set(name, at);
  }

  /** Returns [{ name, from, to }] in ms since the begin. A stage whose event came after a later one has no duration. */
  stages() {
    const end = this.#marks.get("heard") ?? Infinity;
    let from = 0;
    return STAGES.filter(({ mark }) => this.#marks.has(mark)).map(({ mark, name }) => {
      const to = Math.max(from, Math.min(this.#marks.get(mark), end) - this.#begun);
      const stage = { name, from: Math.round(from), to: Math.round(to) };
      from = to;
      return stage;
    });
  }
}

/** Shows the stages as bars below one another; replaces the content of `details`. */
export function showWaterfall(details, stages) {
  details.querySelector(".waterfall")?.remove();
  const whole = Math.max(1, stages.at(-1)?.to ?? 1);
  const list = document.createElement("ol");
  list.className = "waterfall";
  for (const { name, from, to } of stages) {
    const item = document.createElement("li");
    const label = Object.assign(document.createElement("span"), { textContent: name });
    const bar = Object.assign(document.createElement("span"), { className: "stage" });
    bar.style.setProperty("--from", from / whole);
    bar.style.setProperty("--share", (to - from) / whole);
    const time = Object.assign(document.createElement("span"), { className: "took", textContent: `${to - from} ms` });
    item.append(label, bar, time);
    list.append(item);
  }
  details.append(list);
}
