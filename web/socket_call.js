// One call over a websocket, for networks that let no UDP through: the same events, with sound inside of them. Here the page plays
// the answers, so it also tells when they begin and end, and how much of an interrupted one was heard.

import { protocols } from "./key.js";
import { Player } from "./player.js";
import { fromBase64, toBase64 } from "./pcm.js";
import { CallError } from "./server.js";

const PATH = "/v1/realtime";
/** Bytes that may wait for the network; microphone sound beyond that is left out. About ten seconds. */
const MOST_WAITING = 1_500_000;

/** A call in progress; dispatches what a `Call` dispatches. */
export class SocketCall extends EventTarget {
  #socket = null;
  #context;
  #microphone;
  #source = null;
  #capture = null;
  #player;
  /** Responses that are being made. */
  #active = new Set();
  /** Whether the caller's voice stops the answer. */
  #interrupts = true;
  #over = false;

  /**
   * @param {MediaStream} microphone what is sent; the call does not stop it
   * @param {AudioContext} context a running context
   */
  constructor(microphone, context) {
    super();
    this.#microphone = microphone;
    this.#context = context;
    this.#player = new Player(context);
    for (const type of ["started", "stopped", "cleared"]) {
      this.#player.addEventListener(type, ({ detail }) => {
        this.#dispatch("event", { type: `output_audio_buffer.${type}`, response_id: detail });
      });
    }
  }

  /** Connects; resolves once events can be sent. Throws a CallError after taking everything down. */
  async connect() {
    try {
      await this.#context.audioWorklet.addModule("capture_worklet.js");
      this.#socket = await open(`${location.origin.replace(/^http/, "ws")}${PATH}`);
    } catch (error) {
      this.#close();
      throw error instanceof CallError ? error : new CallError(`The call could not be set up (${error.message}).`);
    }
    if (this.#over) return this.#close();
    this.#socket.addEventListener("message", ({ data }) => this.#received(JSON.parse(data)));
    this.#socket.addEventListener("close", ({ reason }) => this.#lose(reason));
    // Sound as this machine plays it, so that nothing is resampled here.
    const format = { type: "audio/pcm", rate: this.#context.sampleRate };
    this.send({ type: "session.update", session: { type: "realtime", audio: { input: { format }, output: { format } } } });
    this.#startCapture();
    this.#dispatch("sound", this.#player.stream);
    this.dispatchEvent(new Event("open"));
  }

  /** Sends one client event; without effect after the end. */
  send(event) {
    if (this.#over || this.#socket?.readyState !== WebSocket.OPEN) return;
    this.#socket.send(JSON.stringify(event));
    this.#dispatch("sent", event);
  }

  /** Stops the answer: what is being made of it, and what is still to be played. */
  stopAnswer() {
    for (const response of this.#active) this.send({ type: "response.cancel", response_id: response });
    this.#cut();
  }

  /** Sends another microphone's sound from now on. */
  async setMicrophone(stream) {
    this.#microphone = stream;
    this.#source?.disconnect();
    this.#source = this.#context.createMediaStreamSource(stream);
    this.#source.connect(this.#capture);
  }

  /** A websocket has nothing to report. */
  async stats() {
    return new Map();
  }

  hangUp() {
    if (!this.#over) this.#close();
  }

  #startCapture() {
    this.#capture = new AudioWorkletNode(this.#context, "capture", { numberOfOutputs: 0 });
    this.#capture.port.onmessage = ({ data }) => {
      if (this.#over || this.#socket.bufferedAmount > MOST_WAITING) return;
      this.#socket.send(JSON.stringify({ type: "input_audio_buffer.append", audio: toBase64(data) }));
    };
    this.setMicrophone(this.#microphone);
  }

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

  /** Stops what plays, and tells the server how much of it was heard. */
  #cut() {
    for (const { item, heardMs } of this.#player.clear()) {
      this.send({ type: "conversation.item.truncate", item_id: item, content_index: 0, audio_end_ms: heardMs });
    }
  }

  #lose(reason) {
    if (this.#over) return;
    this.#close();
    this.#dispatch("lost", CallError.retryable(reason ? `The server ended the call: ${reason}` : "The connection was lost."));
  }

  #close() {
    this.#over = true;
    this.#source?.disconnect();
    this.#capture?.port.close();
    this.#player.clear();
    this.#socket?.close();
  }

  #dispatch(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

function open(url) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, protocols());
    socket.addEventListener("open", () => resolve(socket), { once: true });
    // A browser does not say why a websocket was refused.
    const refused = () => reject(CallError.retryable("The server took no call over a websocket either."));
    socket.addEventListener("close", refused, { once: true });
  });
}
