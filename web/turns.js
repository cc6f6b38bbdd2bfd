// The visible list of turns: the caller's words, the answer, its unheard part, function calls, the time to first sound.

import { MAX_DECISIONS, showDecisions } from "./decisions.js";
import { showWaterfall } from "./waterfall.js";

/** @import { CallRecord, TurnRecord } from "./transcript.js" */
/** @import { DecisionMade } from "./types/events.js" */
/** @import { WaterfallStage } from "./waterfall.js" */

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
  /** Item id -> its element and its words. @type {Map<string, { shown: HTMLElement, text: string }>} */
  #parts = new Map();

  /**
   * @param {HTMLElement} list list of turns
   * @param {TurnRecord} record the turn of the transcript
   * @param {() => void} changed called when the record has changed
   */
  constructor(list, record, changed) {
    this.#record = record;
    this.#changed = changed;
    this.#timing.append(this.#time);
    this.#item.append(this.#asked, this.#calls, this.#answer, this.#foot, this.#timing);
    // A screen reader waits until the answer is complete.
    this.#item.setAttribute("aria-busy", "true");
    list.append(this.#item);
    this.#scroll();
  }

  /**
   * Shows a finished turn.
   *
   * @param {HTMLElement} list list of turns
   * @param {TurnRecord} record
   */
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

  /** Shows the duration of the caller's turn, with the silence that ended it. @param {number} ms */
  lasted(ms) {
    this.#record.askedMs = ms;
    this.#showAsked();
  }

  /**
   * Shows the caller's words: `written`, or transcribed by the server; `more` appends to them.
   *
   * @param {string} text
   * @param {{ written?: boolean, more?: boolean }} [kind]
   */
  said(text, { written = false, more = false } = {}) {
    this.#record.asked = more ? (this.#record.asked ?? "") + text : text;
    this.#record.written = written;
    this.#showAsked();
  }

  /**
   * Appends to the answer of one item of the conversation.
   *
   * @param {string} text
   * @param {string} item id
   */
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

  /**
   * Shows the heard words of a truncated item, and strikes out the others.
   *
   * @param {string} kept
   * @param {string} item id
   */
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

  /** Shows a function call and its result. @param {CallRecord} call */
  called(call) {
    this.#record.calls.push(call);
    this.#showCall(call);
    this.#changed();
  }

  /**
   * Shows the time to first sound.
   *
   * @param {number} ms
   * @param {WaterfallStage[] | null} waterfall its stages
   */
  firstSound(ms, waterfall) {
    [this.#record.firstSoundMs, this.#record.waterfall] = [ms, waterfall];
    this.#showTime();
    this.#changed();
  }

  /** Shows a decision of the server. @param {DecisionMade} made */
  decided(made) {
    const { decisions } = this.#record;
    if (decisions.length === MAX_DECISIONS) return;
    decisions.push(made);
    this.#showTime();
    this.#changed();
  }

  /** Marks the answer as interrupted. */
  interrupted() {
    this.#item.classList.add("interrupted");
    if (!this.#record.note) this.#note("interrupted");
  }

  /** Ends the answer. @param {string} [problem] reason of an early end */
  finish(problem) {
    if (problem) this.#record.note = problem;
    this.#finished(problem);
    this.#changed();
  }

  /** @param {string} [problem] */
  #finished(problem) {
    if (problem) this.#note(problem);
    this.#item.removeAttribute("aria-busy");
  }

  /** @param {string} text */
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

  /** @param {CallRecord} call */
  #showCall({ name, arguments: given, result }) {
    const item = element("li");
    item.append(Object.assign(element("code"), { textContent: `${name}(${given === "{}" ? "" : given})` }), ` gave ${result}`);
    this.#calls.append(item);
    this.#scroll();
  }

  #showTime() {
    const { firstSoundMs, waterfall, decisions } = this.#record;
    if (firstSoundMs !== null) this.#time.textContent = `first sound ${firstSoundMs} ms`;
    else if (decisions.length) this.#time.textContent = "what the server decided";
    else return;
    if (waterfall) showWaterfall(this.#timing, waterfall);
    showDecisions(this.#timing, decisions);
    this.#scroll();
  }

  #scroll() {
    this.#item.scrollIntoView({ block: "nearest" });
  }
}

/** @param {string} text */
function struck(text) {
  return Object.assign(element("s", "unheard"), { textContent: text, title: "not heard" });
}

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} name class
 */
function element(tag, name = "") {
  const made = document.createElement(tag);
  made.className = name;
  return made;
}
