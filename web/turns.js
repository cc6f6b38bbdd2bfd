// The list of turns: the question (if the server transcribes it), the answer, the time to first sound.

/** One question and its answer, as a list item. */
export class Turn {
  #item = document.createElement("li");
  #asked = span("asked");
  #time = span("time");
  #answer = document.createElement("p");
  #foot = document.createElement("p");

  /** @param {HTMLElement} list where the turn shows */
  constructor(list) {
    const head = document.createElement("p");
    head.className = "turn-head";
    head.append(this.#asked, this.#time);
    this.#answer.className = "answer";
    this.#foot.className = "turn-foot";
    this.#item.append(head, this.#answer, this.#foot);
    // Until the answer is whole, a screen reader waits.
    this.#item.setAttribute("aria-busy", "true");
    list.append(this.#item);
    this.#item.scrollIntoView({ block: "nearest" });
  }

  /** Duration of the caller's turn in milliseconds, with the silence that ended it. */
  lasted(ms) {
    this.#asked.textContent = `Your turn, ${(ms / 1000).toFixed(1)} s`;
  }

  /** The caller's words, if the server transcribes them. */
  said(text) {
    this.#asked.textContent = `You: ${text}`;
  }

  /** More of the answer. */
  add(text) {
    this.#answer.append(text);
    this.#item.scrollIntoView({ block: "nearest" });
  }

  /** The time to the first sound, as shown. */
  firstSound(text) {
    this.#time.textContent = `first sound ${text}`;
  }

  /** The caller barged in. */
  interrupted() {
    this.#item.classList.add("interrupted");
    this.#foot.textContent = "interrupted";
  }

  /** The answer is whole, or `problem` says why not. */
  finish(problem) {
    if (problem) this.#foot.textContent = problem;
    this.#item.removeAttribute("aria-busy");
  }
}

function span(name) {
  const element = document.createElement("span");
  element.className = name;
  return element;
}
