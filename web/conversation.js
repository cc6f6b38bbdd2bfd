// One conversation: one call, or several if connections are lost. Owns the audio and the call.

import { Call } from "./call.js";
import { Dialogue } from "./dialogue.js";
import { Meters } from "./meters.js";
import { Recorder } from "./recorder.js";
import { redial } from "./redial.js";
import { iceServers, messageOf } from "./server.js";
import { SocketCall } from "./socket_call.js";
import { $, alertText, noticeText, show, showInterrupted } from "./view.js";
import { VoiceInput } from "./voice_input.js";

/** @import { CallEvent } from "./call.js" */
/** @import { CallError } from "./server.js" */
/** @import { SettingChange, Settings } from "./settings.js" */
/** @import { Transcript } from "./transcript.js" */
/** @import { ClientEvent } from "./types/events.js" */
/** @import { EventTargetOf } from "./types/page.js" */

/** @typedef {{ opened: undefined, event: CallEvent, sent: ClientEvent, ended: unknown }} ConversationEvents */

/** Dispatches `opened` with each call, `event` and `sent` (detail is the event), `ended` (detail is the error that ended it). */
export class Conversation extends /** @type {EventTargetOf<ConversationEvents>} */ (EventTarget) {
  #settings;
  #transcript;
  #remembers;
  #context;
  #dialogue;
  #meters;
  /** @type {Recorder | null} */
  #recorder = null;
  /** @type {Call | SocketCall | null} */
  #call = null;
  #spoken;
  #input;
  /** True if UDP did not get through, so that the call runs over a websocket. */
  #byWebsocket;
  /** Time of the loss of the connection, until there is a new one; on the clock of performance.now(). @type {number | null} */
  #lostAt = null;
  #over = false;

  /**
   * @param {Settings} settings
   * @param {Transcript} transcript
   * @param {boolean} remembers true if the model follows a conversation
   * @param {boolean} spoken false to leave the microphone closed until it is unmuted
   */
  constructor(settings, transcript, remembers, spoken) {
    super();
    this.#settings = settings;
    this.#transcript = transcript;
    this.#remembers = remembers;
    this.#byWebsocket = settings.get("transport") === "websocket";
    // Created inside the tap: browsers start audio only on a user gesture.
    this.#context = new AudioContext();
    this.#context.resume();
    this.#spoken = spoken;
    this.#input = new VoiceInput(this.#context, settings.get("turns") === "none");
    this.#input.addEventListener("opened", ({ detail }) => this.#speaks(detail));
    this.#input.addEventListener("lost", ({ detail }) => this.#tell("ended", detail));
    this.#dialogue = new Dialogue((event) => this.send(event), transcript, remembers, () => settings.ownTools());
    this.#meters = new Meters(this.#context, this.#dialogue);
  }

  /** Recorder of both sides; null if there is none. */
  get recorder() {
    return this.#recorder;
  }

  /** True if a call is connected. */
  get connected() {
    return !["idle", "connecting", "redialling"].includes(document.body.dataset.state ?? "idle");
  }

  async start() {
    document.body.dataset.input = "written";
    show("connecting");
    // First, because a server with keys refuses this request before the browser asks for the microphone.
    const relays = await iceServers();
    if (this.#spoken) await this.#input.open(this.#settings.get("microphone"));
    if (this.#over) return this.#input.close();
    if (this.#settings.get("keepsSound")) this.#recorder = Recorder.of(this.#context, this.#input.stream);
    await this.#dial(relays);
  }

  /** @param {RTCIceServer[]} relays */
  async #dial(relays) {
    const { stream } = this.#input;
    const call = this.#byWebsocket ? new SocketCall(stream, this.#context) : new Call(stream, relays);
    this.#call = call;
    call.addEventListener("event", ({ detail }) => {
      this.#dialogue.handle(detail);
      this.#tell("event", detail);
    });
    call.addEventListener("sent", ({ detail }) => this.#tell("sent", detail));
    call.addEventListener("open", () => this.#opened());
    call.addEventListener("interrupted", ({ detail }) => showInterrupted(detail));
    call.addEventListener("lost", ({ detail }) => this.#lost(detail));
    call.addEventListener("sound", ({ detail }) => this.#play(detail));
    await call.connect();
  }

  #opened() {
    if (this.#lostAt !== null) alertText("");
    this.#lostAt = null;
    this.#call?.send({ type: "session.update", session: { type: "realtime", repartee: { decisions: true } } });
    const chosen = this.#settings.sessionIfChosen();
    if (chosen) this.#call?.send({ type: "session.update", session: chosen });
    // A model without memory gets no history.
    if (this.#remembers) for (const event of this.#transcript.events()) this.#call?.send(event);
    show("listening");
    this.#tell("opened");
  }

  /** @param {CallError} problem */
  async #lost(problem) {
    showInterrupted(false);
    if (!problem.unreachable || this.#byWebsocket) return this.#redial(problem);
    if (this.#settings.get("transport") === "webrtc") return this.#tell("ended", problem);
    this.#byWebsocket = true;
    try {
      await this.#dial([]);
      if (this.#over) return;
      noticeText("UDP does not get through to this server, so the call runs over a websocket: answers come a little later.");
    } catch (error) {
      if (!this.#over) this.#tell("ended", Object.assign(problem, { message: `${problem.message} ${messageOf(error)}` }));
    }
  }

  /** Calls again after a retryable loss of the connection; gives up after a while. @param {CallError} problem */
  async #redial(problem) {
    const lostAt = this.#lostAt ?? performance.now();
    this.#lostAt = lostAt;
    this.#dialogue.end("The connection was lost.");
    show("redialling");
    try {
      await redial(async () => this.#dial(await iceServers()), problem, lostAt, () => this.#over);
    } catch (error) {
      if (!this.#over) this.#tell("ended", error);
    }
  }

  /** Sends changed settings to the server. @param {SettingChange} change */
  async changed({ name, ofTheSession }) {
    if (ofTheSession) this.#call?.send({ type: "session.update", session: this.#settings.session() });
    if (name === "microphone" && this.#input.isOpen) await this.#open();
  }

  /** Mutes the microphone, or opens it after a begin in writing; false if it does not open. @param {boolean} muted */
  async mute(muted) {
    this.#input.mute(muted);
    return muted || this.#input.isOpen || this.#open();
  }

  /** Sends a client event as it is. @param {ClientEvent} event */
  send(event) {
    this.#call?.send(event);
  }

  /** Stops the current answer, if there is one. */
  stopAnswer() {
    if (["thinking", "speaking"].includes(document.body.dataset.state ?? "idle")) this.#call?.stopAnswer();
  }

  /** @param {string} text */
  write(text) {
    this.stopAnswer();
    this.#dialogue.write(text);
  }

  /** Handles the press of the button: earlier audio does not belong to the turn. */
  hold() {
    this.stopAnswer();
    this.#meters.loudestOfYou = 0;
    this.#call?.send({ type: "input_audio_buffer.clear" });
    this.mute(false);
    show("hearing");
  }

  /** Handles the release of the button. @param {number | null} heldMs null discards the turn */
  release(heldMs) {
    this.#input.mute(true);
    const silent = this.#meters.loudestOfYou === 0;
    if (silent && heldMs !== null) noticeText("Nothing was heard while you held the button: is the microphone on?");
    else if (heldMs !== null) return this.#dialogue.release(heldMs);
    this.#call?.send({ type: "input_audio_buffer.clear" });
    show("listening");
  }

  stats() {
    return this.#call?.stats();
  }

  end() {
    this.#over = true;
    this.#call?.hangUp();
    this.#input.close();
    this.#dialogue.end();
    this.#meters.close();
    // The context stays open until the recording is complete.
    Promise.resolve(this.#recorder?.stop()).finally(() => this.#context.close());
    $("voice").srcObject = null;
  }

  /** Opens the microphone of the settings; false if that fails. */
  async #open() {
    try {
      await this.#input.open(this.#settings.get("microphone"));
      return true;
    } catch (error) {
      alertText(messageOf(error));
      return false;
    }
  }

  /** Sends this microphone from now on. @param {MediaStream} stream */
  #speaks(stream) {
    document.body.dataset.input = "spoken";
    if (document.body.dataset.state === "listening") show("listening");
    this.#meters.listenTo("you", stream);
    this.#recorder?.setMicrophone(stream);
    this.#call?.setMicrophone(stream);
  }

  /** @param {MediaStream} stream */
  #play(stream) {
    // The element first: without it an analyser gets no audio in some browsers.
    $("voice").srcObject = stream;
    $("voice").play().catch(() => alertText("The browser blocked the sound: tap the button twice to start again."));
    this.#meters.listenTo("it", stream);
    this.#recorder?.setAnswer(stream);
  }

  /**
   * @template {keyof ConversationEvents} Type
   * @param {Type} type
   * @param {ConversationEvents[Type]} [detail]
   */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
