// One call over a websocket, for networks that block UDP: the same events, with audio inside them. Here the page plays the answers, so
// it also reports their begin and end, and the heard time of an interrupted one.

import { LOST_AFTER_MS, ServerWatch } from "./connection_watch.js";
import { protocols } from "./key.js";
import { Player } from "./player.js";
import { fromBase64, toBase64 } from "./pcm.js";
import { CallError, messageOf } from "./server.js";

/** @import { CallEvents } from "./call.js" */
/** @import { NetworkStats } from "./network.js" */
/** @import { AudioFormat, ClientEvent, ServerEvent } from "./types/events.js" */
/** @import { EventTargetOf } from "./types/page.js" */

const PATH = "/v1/realtime";
/** Largest send buffer in bytes, about ten seconds; further microphone audio is dropped. */
const MOST_WAITING = 1_500_000;

/** A call in progress; dispatches the same events as a `Call`. */
export class SocketCall extends /** @type {EventTargetOf<CallEvents>} */ (EventTarget) {
  /** @type {WebSocket | null} */
  #socket = null;
  #context;
  #microphone;
  /** @type {MediaStreamAudioSourceNode | null} */
  #source = null;
  /** @type {AudioWorkletNode | null} */
  #capture = null;
  #player;
  /** Responses in progress. @type {Set<string>} */
  #active = new Set();
  /** True if the caller's voice stops the answer. */
  #interrupts = true;
  #over = false;
  /** True if the server does not answer at present. */
  #silent = false;
  #timer = 0;
  /** @type {ServerWatch | null} */
  #watch = null;

  /**
   * @param {MediaStream} microphone stream to send; the call does not stop it
   * @param {AudioContext} context a running context
   */
  constructor(microphone, context) {
    super();
    this.#microphone = microphone;
    this.#context = context;
    this.#player = new Player(context);
    for (const type of /** @type {const} */ (["started", "stopped", "cleared"])) {
      this.#player.addEventListener(type, ({ detail }) => {
        this.#dispatch("event", { type: `output_audio_buffer.${type}`, response_id: detail });
      });
    }
  }

  /** Connects; resolves once events can be sent. On failure closes everything and throws a CallError. */
  async connect() {
    let socket;
    try {
      await this.#context.audioWorklet.addModule("capture_worklet.js");
      socket = await open(`${location.origin.replace(/^http/, "ws")}${PATH}`);
    } catch (error) {
      this.#close();
      throw error instanceof CallError ? error : new CallError(`The call could not be set up (${messageOf(error)}).`);
    }
    this.#socket = socket;
    if (this.#over) return this.#close();
    socket.addEventListener("message", ({ data }) => this.#received(JSON.parse(data)));
    socket.addEventListener("close", ({ reason }) => this.#lose(reason));
    // The machine's own rate, so that the page does not resample.
    /** @type {AudioFormat} */
    const format = { type: "audio/pcm", rate: this.#context.sampleRate };
    this.send({ type: "session.update", session: { type: "realtime", audio: { input: { format }, output: { format } } } });
    this.#startCapture(socket);
    this.#watch = new ServerWatch((interrupted) => this.#interrupted(interrupted));
    this.#dispatch("sound", this.#player.stream);
    this.dispatchEvent(new Event("open"));
  }

  /** Sends one client event; without effect after the end. @param {ClientEvent} event */
  send(event) {
    if (this.#over || this.#socket?.readyState !== WebSocket.OPEN) return;
    this.#socket.send(JSON.stringify(event));
    this.#dispatch("sent", event);
  }

  /** Cancels the response and drops its unplayed audio. */
  stopAnswer() {
    for (const response of this.#active) this.send({ type: "response.cancel", response_id: response });
    this.#cut();
  }

  /** Switches to another microphone. @param {MediaStream} stream */
  async setMicrophone(stream) {
    this.#microphone = stream;
    this.#source?.disconnect();
    this.#source = this.#context.createMediaStreamSource(stream);
    // Before the connection there is no capture yet.
    if (this.#capture) this.#source.connect(this.#capture);
  }

  /** Returns no statistics: a websocket has none. @returns {Promise<Map<string, NetworkStats>>} */
  async stats() {
    return new Map();
  }

  hangUp() {
    if (!this.#over) this.#close();
  }

  /** @param {WebSocket} socket */
  #startCapture(socket) {
    this.#capture = new AudioWorkletNode(this.#context, "capture", { numberOfOutputs: 0 });
    this.#capture.port.onmessage = ({ data }) => {
      if (this.#over || socket.bufferedAmount > MOST_WAITING) return;
      /** @type {ClientEvent} */
      const append = { type: "input_audio_buffer.append", audio: toBase64(data) };
      socket.send(JSON.stringify(append));
    };
    this.setMicrophone(this.#microphone);
  }

  /** @param {ServerEvent} event */
  #received(event) {
    if (this.#over) return;
    switch (event.type) {
      case "session.created":
      case "session.updated":
        this.#interrupts = event.session?.audio?.input?.turn_detection?.interrupt_response ?? true;
        break;
      case "response.created":
        this.#active.add(event.response.id);
        break;
      case "response.output_audio.delta":
        this.#player.push(event.response_id, event.item_id, fromBase64(event.delta));
        break;
      case "response.done":
        this.#active.delete(event.response.id);
        this.#player.finish(event.response.id);
        break;
      case "input_audio_buffer.speech_started":
        this.#dispatch("event", event);
        if (this.#interrupts) this.#cut();
        return;
    }
    this.#dispatch("event", event);
  }

  /** Stops the playback, and sends the heard time to the server. */
  #cut() {
    for (const { item, heardMs } of this.#player.clear()) {
      this.send({ type: "conversation.item.truncate", item_id: item, content_index: 0, audio_end_ms: heardMs });
    }
  }

  /** @param {boolean} interrupted */
  #interrupted(interrupted) {
    if (this.#over || interrupted === this.#silent) return;
    this.#silent = interrupted;
    clearTimeout(this.#timer);
    if (interrupted) this.#timer = setTimeout(() => this.#lose(""), LOST_AFTER_MS);
    this.#dispatch("interrupted", interrupted);
  }

  /** @param {string} reason */
  #lose(reason) {
    if (this.#over) return;
    this.#close();
    this.#dispatch("lost", CallError.retryable(reason ? `The server ended the call: ${reason}` : "The connection was lost."));
  }

  #close() {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#watch?.stop();
    this.#source?.disconnect();
    this.#capture?.port.close();
    this.#player.clear();
    this.#socket?.close();
  }

  /**
   * @template {keyof CallEvents} Type
   * @param {Type} type
   * @param {CallEvents[Type]} detail
   */
  #dispatch(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/**
 * @param {string} url
 * @returns {Promise<WebSocket>}
 */
function open(url) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, protocols());
    socket.addEventListener("open", () => resolve(socket), { once: true });
    // A browser does not say why a websocket was refused.
    const refused = () => reject(CallError.retryable("The server did not accept a websocket call either."));
    socket.addEventListener("close", refused, { once: true });
  });
}
