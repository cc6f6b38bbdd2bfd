// What the caller waited for: the stages from the end of the caller's voice to the first sound, on this page's clock.

/** Stages in their order: what ends each, and what a person reads. */
const STAGES = [
  { mark: "ended", name: "End of the turn found" },
  { mark: "created", name: "Response begun" },
  { mark: "worded", name: "First word" },
  { mark: "sent", name: "First sound left the server" },
  { mark: "heard", name: "First sound heard" },
];

/** Collects when the stages of one turn ended; times in ms of performance.now(). */
export class Marks {
  #begun;
  #marks = new Map();

  /** @param {number} begun when the caller fell silent, or the text was sent */
  constructor(begun) {
    this.#begun = begun;
  }

  /** The first time counts. */
  mark(name, at = performance.now()) {
    if (!this.#marks.has(name)) this.#marks.set(name, at);
  }

  /** [{ name, from, to }] in ms since the caller fell silent. A stage whose event came after a later one took no time. */
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

/** Shows the stages as bars below one another; replaces what `details` showed before. */
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
