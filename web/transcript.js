// The conversation so far, as data: kept across a reload while the tab is open, sent to a new call (the server keeps a session
// no longer than its call), and exported for download.

/** @import { ClientEvent, DecisionMade } from "./types/events.js" */
/** @import { WaterfallStage } from "./waterfall.js" */

/** @typedef {{ name: string, arguments: string, result: string }} CallRecord */

/**
 * One turn.
 *
 * @typedef {object} TurnRecord
 * @property {string | null} asked the caller's words
 * @property {boolean} written true if they were typed
 * @property {number | null} askedMs duration of the caller's turn
 * @property {string} answer its heard part
 * @property {string} unheard the rest of an interrupted answer
 * @property {number | null} firstSoundMs null until there is a sound
 * @property {WaterfallStage[] | null} waterfall null until there is a sound
 * @property {DecisionMade[]} decisions the server's decisions about the caller's sound
 * @property {CallRecord[]} calls
 * @property {string} note reason of an early end; empty for none
 * @property {number} at its begin, in ms since 1970
 */

const NAME = "repartee.transcript";
/** Placeholder of a question without a transcript: most models make none. */
const NO_TRANSCRIPT = "(A spoken question; its words were not kept.)";
/** Largest number of turns; the oldest are dropped. */
const MAX_TURNS = 100;

/** Returns an empty turn that begins now. @returns {TurnRecord} */
export function newTurn() {
  const unknown = { asked: null, askedMs: null, firstSoundMs: null, waterfall: null };
  return { ...unknown, written: false, answer: "", unheard: "", decisions: [], calls: [], note: "", at: Date.now() };
}

export class Transcript {
  /** @type {TurnRecord[]} */
  #turns = [];

  /** Loads the transcript of this tab. */
  static kept() {
    const transcript = new Transcript();
    try {
      const kept = JSON.parse(sessionStorage.getItem(NAME) ?? "[]");
      for (const turn of kept) transcript.#turns.push({ ...newTurn(), ...turn });
    } catch {
      // Storage is off, or an older page wrote its content: start with an empty transcript.
    }
    return transcript;
  }

  /** Returns all turns, the oldest first. */
  get turns() {
    return this.#turns;
  }

  /** Adds a turn. */
  add() {
    const turn = newTurn();
    this.#turns.push(turn);
    if (this.#turns.length > MAX_TURNS) this.#turns.shift();
    return turn;
  }

  keep() {
    try {
      sessionStorage.setItem(NAME, JSON.stringify(this.#turns));
    } catch {
      // Storage is off: the transcript lasts until the page is closed.
    }
  }

  clear() {
    this.#turns = [];
    this.keep();
  }

  /**
   * Returns the client events that send the history to a new call. Of an interrupted answer only the heard part.
   *
   * @returns {ClientEvent[]}
   */
  events() {
    /** @type {(role: "user" | "assistant", type: "input_text" | "output_text", text: string) => ClientEvent} */
    const message = (role, type, text) => ({
      type: "conversation.item.create",
      item: { type: "message", role, content: [{ type, text }] },
    });
    return this.#turns
      .filter(({ answer }) => answer.trim())
      .flatMap(({ asked, answer }) => [
        message("user", "input_text", asked ?? NO_TRANSCRIPT),
        message("assistant", "output_text", answer),
      ]);
  }

  /** Returns the transcript as text. */
  text() {
    return this.#turns.map(asText).join("\n");
  }
}

/** @param {TurnRecord} turn */
function asText({ at, asked, askedMs, answer, unheard, calls, firstSoundMs, note }) {
  const lines = [new Date(at).toLocaleString()];
  if (asked !== null) lines.push(`You: ${asked}`);
  else if (askedMs !== null) lines.push(`You: (spoken, ${(askedMs / 1000).toFixed(1)} s)`);
  for (const call of calls) lines.push(`Function: ${call.name}(${call.arguments}) = ${call.result}`);
  lines.push(`Answer: ${answer.trim()}${unheard.trim() ? ` [not heard: ${unheard.trim()}]` : ""}`);
  if (firstSoundMs !== null) lines.push(`First sound after ${firstSoundMs} ms`);
  if (note) lines.push(note);
  return `${lines.join("\n")}\n`;
}
