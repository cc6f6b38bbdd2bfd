// What the scripts of the Node clients share: the turns to take, the answers as they come, and what is printed in the end. The file
// that describes a scenario and what is printed are those of ../scenario.py, which says what they mean.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/**
 * Function to offer.
 *
 * @typedef {object} ScenarioFunction
 * @property {string} name
 * @property {string} description
 * @property {any} parameters JSON schema; the clients have their own types for it
 * @property {string} result
 */

/**
 * File that describes a scenario.
 *
 * @typedef {object} ScenarioFile
 * @property {string} folder for recordings
 * @property {number} rate of all sound
 * @property {{ say: string, until: string }[]} turns
 * @property {string} key
 * @property {string} [certificate] the server's, if it speaks TLS
 * @property {ScenarioFunction | null} function
 */

/** Sound is said in pieces of this length. */
const PIECE_MS = 100;
/** How much of an answer is heard before it is interrupted. */
const HEARD_MS = 500;
/** Timeout of one answer, long enough for a busy machine. */
const ANSWERED_WITHIN_MS = 40_000;

/** One answer as the client hands it out. */
class Answer {
  transcript = "";
  /** All that came of its sound, piece by piece. @type {Buffer[]} */
  sound = [];
  /** All of it was made, or it was stopped in the making. */
  made = false;
  interrupted = false;
  /** When its first sound came. @type {number | undefined} */
  began = undefined;
  /** True if all of it was played, if the server reports it. @type {boolean | undefined} */
  ended = undefined;

  #rate;

  /** @param {number} rate */
  constructor(rate) {
    this.#rate = rate;
  }

  get lengthMs() {
    return (this.sound.reduce((length, piece) => length + piece.byteLength, 0) / 2 / this.#rate) * 1000;
  }

  /** Returns its heard part: it plays from its first sound on. */
  get playedMs() {
    const elapsed = this.began === undefined ? 0 : performance.now() - this.began;
    return this.ended === undefined ? Math.min(elapsed, this.lengthMs) : elapsed;
  }

  get isPlayed() {
    return this.ended ?? this.playedMs >= this.lengthMs;
  }

  /** More of its sound came. @param {Buffer | ArrayBuffer} sound */
  sounded(sound) {
    this.began ??= performance.now();
    this.sound.push(sound instanceof ArrayBuffer ? Buffer.from(sound) : Buffer.from(sound));
  }

  /** The client plays no more of it. Some clients say so of an answer that was heard to its end, too. */
  stopped() {
    this.interrupted ||= !(this.made && this.isPlayed);
  }
}

/** The turns of one conversation, and their results. */
export class Scenario {
  /** @type {Answer[]} */
  answers = [];
  /** @type {string[]} */
  errors = [];
  /** @type {{ type: string }[]} */
  events = [];
  /** Arguments of each call of the function. @type {unknown[]} */
  calls = [];

  /** @type {Map<string, Answer>} */
  #byName = new Map();

  /** @param {string} path of its file */
  constructor(path) {
    /** @type {ScenarioFile} */
    const file = JSON.parse(readFileSync(path, "utf8"));
    this.folder = file.folder;
    this.rate = file.rate;
    this.turns = file.turns;
    this.key = file.key;
    this.certificate = file.certificate;
    this.function = file.function;
  }

  /** The answer that the client calls by this name. @param {string} name */
  answer(name) {
    let answer = this.#byName.get(name);
    if (!answer) {
      answer = new Answer(this.rate);
      this.#byName.set(name, answer);
      this.answers.push(answer);
    }
    return answer;
  }

  /** The function itself. @param {unknown} args */
  call(args) {
    this.calls.push(args);
    return this.function?.result;
  }

  /** Notes that all of an answer was made, if it is one: without sound it is none. @param {string} name */
  made(name) {
    if (this.#byName.has(name)) this.answer(name).made = true;
  }

  /** The newest answer, if there is one. */
  get last() {
    return this.answers.at(-1);
  }

  /**
   * Takes every turn: hands each piece of its recording to `say`, waits until the answer is as far as the turn says.
   *
   * @param {(piece: Buffer) => unknown} say
   */
  async take(say) {
    for (const [index, turn] of this.turns.entries()) {
      const sound = readFileSync(turn.say);
      const size = ((this.rate * PIECE_MS) / 1000) * 2;
      for (let start = 0; start < sound.length; start += size) await say(sound.subarray(start, start + size));
      await this.#answered(index);
    }
  }

  /** @param {number} index of the turn */
  async #answered(index) {
    const deadline = performance.now() + ANSWERED_WITHIN_MS;
    while (!this.#isFarEnough(index)) {
      if (this.errors.length) throw new Error(`turn ${index}: ${this.errors}`);
      if (performance.now() > deadline) {
        const seen = this.events.map(({ type }) => type);
        throw new Error(`turn ${index} has no answer in time: ${seen}`);
      }
      await sleep(20);
    }
  }

  /** @param {number} index of the turn */
  #isFarEnough(index) {
    const answer = this.answers[index];
    if (!answer) return false;
    switch (this.turns[index].until) {
      case "finished":
        return answer.made && answer.isPlayed;
      case "held":
        return answer.playedMs >= HEARD_MS;
      case "playing":
        return answer.made && answer.playedMs >= HEARD_MS;
      default:
        throw new Error(`there is no ${this.turns[index].until}`);
    }
  }

  /** Prints the results. @param {string} name of the client's package */
  report(name) {
    const manifest = new URL(`node_modules/${name}/package.json`, import.meta.url);
    const { version } = JSON.parse(readFileSync(manifest, "utf8"));
    this.reportAs(`${name} ${version}`);
  }

  /** Prints the results. @param {string} client its name and version */
  reportAs(client) {
    const answers = this.answers.map((answer, index) => {
      const sound = join(this.folder, `answer-${index}.pcm`);
      writeFileSync(sound, Buffer.concat(answer.sound));
      return { transcript: answer.transcript, sound, interrupted: answer.interrupted };
    });
    const { errors, events, calls } = this;
    console.log(JSON.stringify({ client, answers, errors, events, calls }));
  }
}
