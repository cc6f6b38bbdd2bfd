// Player of answers: plays chunks without gaps, and tracks the heard time of each item.

/** @import { EventTargetOf } from "./types/page.js" */

/**
 * Playing or scheduled chunk.
 *
 * @typedef {object} Piece
 * @property {string} response id
 * @property {string} item id
 * @property {AudioBufferSourceNode} node
 * @property {number} start on the context's clock
 * @property {number} seconds
 */

/** @typedef {{ started: string, stopped: string, cleared: string }} PlayerEvents */

/** Delay before the first chunk, so that the next one comes in time. */
const LEAD_S = 0.06;

/** Dispatches `started`, `stopped` (played to the end) and `cleared` (the rest was dropped); detail is the response's id. */
export class Player extends /** @type {EventTargetOf<PlayerEvents>} */ (EventTarget) {
  #context;
  #destination;
  /** Playing and scheduled chunks, in order. @type {Piece[]} */
  #pieces = [];
  /** Item -> seconds of its completely played chunks. @type {Map<string, number>} */
  #played = new Map();
  /** Responses with complete audio. @type {Set<string>} */
  #complete = new Set();
  /** Responses that have begun to play. @type {Set<string>} */
  #started = new Set();

  /** @param {AudioContext} context its rate is that of the samples */
  constructor(context) {
    super();
    this.#context = context;
    this.#destination = context.createMediaStreamDestination();
  }

  /** Output stream, for an <audio> element. */
  get stream() {
    return this.#destination.stream;
  }

  /**
   * Schedules these samples after the earlier ones.
   *
   * @param {string} response id
   * @param {string} item id
   * @param {Float32Array<ArrayBuffer>} samples
   */
  push(response, item, samples) {
    if (samples.length === 0) return;
    const buffer = this.#context.createBuffer(1, samples.length, this.#context.sampleRate);
    buffer.copyToChannel(samples, 0);
    const node = new AudioBufferSourceNode(this.#context, { buffer });
    node.connect(this.#destination);
    const last = this.#pieces.at(-1);
    const now = this.#context.currentTime;
    const start = last && last.start + last.seconds > now ? last.start + last.seconds : now + LEAD_S;
    const piece = { response, item, node, start, seconds: buffer.duration };
    this.#pieces.push(piece);
    node.addEventListener("ended", () => this.#ended(piece));
    node.start(start);
    if (!this.#started.has(response)) {
      this.#started.add(response);
      this.#tell("started", response);
    }
  }

  /** Marks the audio of this response as complete. @param {string} response */
  finish(response) {
    if (!this.#started.has(response)) return;
    this.#complete.add(response);
    this.#stopIfPlayed(response);
  }

  /** Drops the unplayed audio; returns the heard time of each cut item: [{ item, heardMs }]. */
  clear() {
    const dropped = this.#pieces.splice(0);
    const now = this.#context.currentTime;
    /** @type {Map<string, number>} */
    const heard = new Map();
    for (const { item, node, start, seconds } of dropped) {
      const part = Math.min(seconds, Math.max(0, now - start));
      heard.set(item, (heard.get(item) ?? this.#played.get(item) ?? 0) + part);
      node.stop();
      node.disconnect();
    }
    for (const response of new Set(dropped.map((piece) => piece.response))) {
      this.#forget(response);
      this.#tell("cleared", response);
    }
    this.#played.clear();
    return [...heard].map(([item, seconds]) => ({ item, heardMs: Math.round(seconds * 1000) }));
  }

  /** @param {Piece} piece */
  #ended(piece) {
    const place = this.#pieces.indexOf(piece);
    if (place < 0) return;
    this.#pieces.splice(place, 1);
    this.#played.set(piece.item, (this.#played.get(piece.item) ?? 0) + piece.seconds);
    this.#stopIfPlayed(piece.response);
  }

  /** @param {string} response */
  #stopIfPlayed(response) {
    if (!this.#complete.has(response) || this.#pieces.some((piece) => piece.response === response)) return;
    this.#forget(response);
    this.#played.clear();
    this.#tell("stopped", response);
  }

  /** @param {string} response */
  #forget(response) {
    this.#complete.delete(response);
    this.#started.delete(response);
  }

  /**
   * @param {keyof PlayerEvents} type
   * @param {string} response
   */
  #tell(type, response) {
    this.dispatchEvent(new CustomEvent(type, { detail: response }));
  }
}
