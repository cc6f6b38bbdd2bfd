// Meters of both sides during a call: draws levels, detects the first sound of an answer and the end of the caller's voice.

import { LevelMeter } from "./sound.js";
import { $ } from "./view.js";
import { Waveform } from "./waveform.js";

/** @import { Dialogue } from "./dialogue.js" */

/** @typedef {"you" | "it"} Side */

const SIDES = /** @type {const} */ (["you", "it"]);
/** Interval of readings; shorter than the window of a LevelMeter. */
const READ_EVERY_MS = 20;
/** Readings per drawn bar, which shows the loudest of them. */
const DRAWN_EVERY = 3;
/** Interval of reports to a screen reader. */
const REPORT_EVERY_MS = 1000;
/** Level of a voice: -45 dBFS on the meter's scale of 60 dB. */
const VOICE_LEVEL = 0.25;

export class Meters {
  #context;
  #dialogue;
  /** Side -> its meter. @type {Partial<Record<Side, LevelMeter>>} */
  #meters = {};
  #loudest = { you: 0, it: 0 };
  /** Highest level of the caller since it was last set to 0. */
  loudestOfYou = 0;
  #waves;
  #reader;
  #readings = 0;
  #reportedAt = 0;

  /**
   * @param {AudioContext} context a running context
   * @param {Dialogue} dialogue receives the first sound, and the caller's voice
   */
  constructor(context, dialogue) {
    this.#context = context;
    this.#dialogue = dialogue;
    this.#waves = { you: new Waveform($("you")), it: new Waveform($("it")) };
    this.#reader = setInterval(() => this.#read(), READ_EVERY_MS);
  }

  /**
   * Sets the stream of `side`.
   *
   * @param {Side} side
   * @param {MediaStream} stream
   */
  listenTo(side, stream) {
    this.#meters[side]?.close();
    this.#meters[side] = new LevelMeter(this.#context, stream);
  }

  close() {
    clearInterval(this.#reader);
    for (const meter of Object.values(this.#meters)) meter.close();
    for (const side of SIDES) {
      this.#waves[side].clear();
      setLevel(side, 0, true);
    }
  }

  #read() {
    const report = performance.now() - this.#reportedAt > REPORT_EVERY_MS;
    if (report) this.#reportedAt = performance.now();
    this.#readings += 1;
    for (const side of SIDES) {
      const meter = this.#meters[side];
      if (!meter) continue;
      const level = meter.level();
      setLevel(side, level, report);
      this.#loudest[side] = Math.max(this.#loudest[side], level);
      if (side === "you") this.loudestOfYou = Math.max(this.loudestOfYou, level);
      if (side === "you" && level > VOICE_LEVEL) this.#dialogue.voiced();
    }
    if (this.#readings % DRAWN_EVERY === 0) {
      for (const side of SIDES) {
        this.#waves[side].add(this.#loudest[side]);
        this.#loudest[side] = 0;
      }
    }
    const since = this.#dialogue.awaitedSince;
    const onset = since === null ? null : (this.#meters.it?.onsetAfter(since) ?? null);
    if (onset !== null) this.#dialogue.firstSound(onset);
  }
}

/**
 * @param {Side} side
 * @param {number} level from 0 to 1
 * @param {boolean} report true to tell a screen reader
 */
function setLevel(side, level, report) {
  $(side).style.setProperty("--level", level.toFixed(3));
  if (report) $(side).setAttribute("aria-valuenow", String(Math.round(level * 100)));
}
