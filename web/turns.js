// The list of turns as a person sees it: the caller's words, the answer as it comes, what of it was not heard, functions that were
// called, the time to first sound.

import { showWaterfall } from "./waterfall.js";

/** One turn, as a list item that shows a turn of the transcript and keeps it up to date. */
export class Turn {
  #record;
  #changed;
  #item = element("li");
  #asked = element("p", "asked");
  #answer = element("p", "answer");
  #calls = element("ul", "calls");
  #foot = element("p", "turn-foot");
  #timing = element("details", "timing");
  #time = element("summary", "time");
  /** Item id -> where its words are shown, and its words: { shown, text }. */
  #parts = new Map();

  /**
   * @param {HTMLElement} list where the turn shows
   * @param {object} record the turn of the transcript, see transcript.js
   * @param {() => void} changed called when there is something to keep
   */
  constructor(list, record, changed) {
    this.#record = record;
    this.#changed = changed;
    this.#timing.append(this.#time);
    this.#item.append(this.#asked, this.#calls, this.#answer, this.#foot, this.#timing);
    // Until the answer is whole, a screen reader waits.
    this.#item.setAttribute("aria-busy", "true");
    list.append(this.#item);
    this.#scroll();
  }

  /** Shows a turn that is over. */
  static past(list, record) {
    const turn = new Turn(list, record, () => {});
    turn.#showAsked();
    turn.#answer.append(record.answer);
    if (record.unheard) turn.#answer.append(struck(record.unheard));
    for (const call of record.calls) turn.#showCall(call);
    turn.#showTime();
    turn.#item.classList.toggle("interrupted", record.note.startsWith("interrupted"));
    turn.#finished(record.note);
  }

  /** Duration of the caller's turn in milliseconds, with the silence that ended it. */
  lasted(ms) {
    this.#record.askedMs = ms;
    this.#showAsked();
  }

  /** The caller's words: `written`, or as the server transcribes them; `more` follows what is there. */
  said(text, { written = false, more = false } = {}) {
    this.#record.asked = more ? (this.#record.asked ?? "") + text : text;
    this.#record.written = written;
    this.#showAsked();
  }

  /** More of the answer, of one item of the conversation. */
  add(text, item) {
    let part = this.#parts.get(item);
    if (!part) {
      part = { shown: element("span"), text: "" };
      this.#parts.set(item, part);
      this.#answer.append(part.shown);
    }
    part.text += text;
    part.shown.append(text);
    this.#record.answer += text;
    this.#item.setAttribute("aria-busy", "true");
    this.#scroll();
  }

  /** The item was cut off: of its words these were heard, and the others are struck out. */
  heard(kept, item) {
    const part = this.#parts.get(item);
    if (!part) return;
    const length = part.text.startsWith(kept) ? kept.length : 0;
    const [heard, unheard] = [part.text.slice(0, length), part.text.slice(length)];
    part.shown.replaceChildren(heard);
    if (unheard.trim()) part.shown.append(struck(unheard));
    const whole = this.#record.answer;
    this.#record.answer = whole.slice(0, whole.length - part.text.length) + heard;
    this.#record.unheard = unheard;
    const words = unheard.trim().split(/\s+/).filter(Boolean).length;
    if (words) this.#note(`interrupted, ${words === 1 ? "one word" : `${words} words`} not heard`);
    this.#changed();
  }

  /** The model called a function, which gave this result. */
  called(call) {
    this.#record.calls.push(call);
    this.#showCall(call);
    this.#changed();
  }

  /** The first sound was heard, after the stages of `waterfall`. */
  firstSound(ms, waterfall) {
    [this.#record.firstSoundMs, this.#record.waterfall] = [ms, waterfall];
    this.#showTime();
    this.#changed();
  }

  /** The caller barged in. */
  interrupted() {
    this.#item.classList.add("interrupted");
    if (!this.#record.note) this.#note("interrupted");
  }

  /** The answer is whole, or `problem` says why not. */
  finish(problem) {
    if (problem) this.#record.note = problem;
    this.#finished(problem);
    this.#changed();
  }

  #finished(problem) {
    if (problem) this.#note(problem);
    this.#item.removeAttribute("aria-busy");
  }

  #note(text) {
    this.#record.note = text;
    this.#foot.textContent = text;
    this.#scroll();
  }

  #showAsked() {
    const { asked, askedMs, written } = this.#record;
    if (asked !== null) this.#asked.textContent = `You: ${asked}`;
    else if (askedMs !== null) this.#asked.textContent = `Your turn, ${(askedMs / 1000).toFixed(1)} s`;
    this.#asked.classList.toggle("written", written);
    this.#scroll();
  }

  #showCall({ name, arguments: given, result }) {
    const item = element("li");
    item.append(Object.assign(element("code"), { textContent: `${name}(${given === "{}" ? "" : given})` }), ` gave ${result}`);
    this.#calls.append(item);
    this.#scroll();
  }

  #showTime() {
    const { firstSoundMs, waterfall } = this.#record;
    if (firstSoundMs === null) return;
    this.#time.textContent = `first sound ${firstSoundMs} ms`;
    if (waterfall) showWaterfall(this.#timing, waterfall);
    this.#scroll();
  }

  #scroll() {
    this.#item.scrollIntoView({ block: "nearest" });
  }
}

function struck(text) {
  return Object.assign(element("s", "unheard"), { textContent: text, title: "not heard" });
}

function element(tag, name = "") {
  const made = document.createElement(tag);
  made.className = name;
  return made;
}
