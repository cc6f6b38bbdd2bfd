// One conversation: one call, or several if connections are lost. Owns the microphone, the audio and the call.

import { Call } from "./call.js";
import { Dialogue } from "./dialogue.js";
import { Meters } from "./meters.js";
import { openMicrophone } from "./microphone.js";
import { Recorder } from "./recorder.js";
import { redial } from "./redial.js";
import { CallError, iceServers, messageOf } from "./server.js";
import { SocketCall } from "./socket_call.js";
import { $, alertText, noticeText, show } from "./view.js";

/** @import { CallEvent } from "./call.js" */
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
  /** @type {MediaStream | null} */
  #microphone = null;
  #muted = false;
  /** True if UDP did not get through, so that the call runs over a websocket. */
  #byWebsocket;
  /** Time of the loss of the connection, until there is a new one; on the clock of performance.now(). @type {number | null} */
  #lostAt = null;
  #over = false;

  /**
   * @param {Settings} settings
   * @param {Transcript} transcript
   * @param {boolean} remembers true if the model follows a conversation
   */
  constructor(settings, transcript, remembers) {
    super();
    this.#settings = settings;
    this.#transcript = transcript;
    this.#remembers = remembers;
    this.#byWebsocket = settings.get("transport") === "websocket";
    this.#muted = settings.get("turns") === "none";
    // Created inside the tap: browsers start audio only on a user gesture.
    this.#context = new AudioContext();
    this.#context.resume();
    this.#dialogue = new Dialogue((event) => this.#call?.send(event), transcript, remembers);
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
    show("connecting");
    // First, because a server with keys refuses this request before the browser asks for the microphone.
    const relays = await iceServers();
    await this.#open(this.#settings.get("microphone"));
    if (this.#over || !this.#microphone) return this.#releaseMicrophone();
    if (this.#settings.get("keepsSound")) this.#recorder = Recorder.of(this.#context, this.#microphone);
    await this.#dial(relays);
  }

  /** Replaces the microphone. @param {string} device id; empty for the system's default */
  async #open(device) {
    const before = this.#microphone;
    const microphone = await openMicrophone(device);
    this.#microphone = microphone;
    for (const track of before?.getTracks() ?? []) track.stop();
    for (const track of microphone.getAudioTracks()) {
      track.enabled = !this.#muted;
      track.addEventListener("ended", () => {
        if (!this.#over) this.#tell("ended", new CallError("The microphone was disconnected, so the call ended."));
      });
    }
    if (!this.#over) this.#meters.listenTo("you", microphone);
  }

  /** @param {RTCIceServer[]} relays */
  async #dial(relays) {
    const microphone = this.#microphone;
    if (!microphone) throw new Error("a call needs a microphone");
    const call = this.#byWebsocket ? new SocketCall(microphone, this.#context) : new Call(microphone, relays);
    this.#call = call;
    call.addEventListener("event", ({ detail }) => {
      this.#dialogue.handle(detail);
      this.#tell("event", detail);
    });
    call.addEventListener("sent", ({ detail }) => this.#tell("sent", detail));
    call.addEventListener("open", () => this.#opened());
    call.addEventListener("lost", ({ detail }) => this.#lost(detail));
    call.addEventListener("sound", ({ detail }) => this.#play(detail));
    await call.connect();
  }

  #opened() {
    if (this.#lostAt !== null) alertText("");
    this.#lostAt = null;
    const chosen = this.#settings.sessionIfChosen();
    if (chosen) this.#call?.send({ type: "session.update", session: chosen });
    // A model without memory gets no history.
    if (this.#remembers) for (const event of this.#transcript.events()) this.#call?.send(event);
    show("listening");
    this.#tell("opened");
  }

  /** @param {CallError} problem */
  async #lost(problem) {
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
    if (name === "turns") this.mute(this.#settings.get("turns") === "none");
    if (name !== "microphone") return;
    await this.#open(this.#settings.get("microphone")).catch((error) => alertText(messageOf(error)));
    if (this.#over || !this.#microphone) return this.#releaseMicrophone();
    await this.#call?.setMicrophone(this.#microphone);
    this.#recorder?.setMicrophone(this.#microphone);
  }

  /** @param {boolean} muted */
  mute(muted) {
    this.#muted = muted;
    for (const track of this.#microphone?.getAudioTracks() ?? []) track.enabled = !muted;
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
    this.#call?.send({ type: "input_audio_buffer.clear" });
    this.mute(false);
    show("hearing");
  }

  /** Handles the release of the button. @param {number | null} heldMs null discards the turn */
  release(heldMs) {
    this.mute(true);
    if (heldMs !== null) return this.#dialogue.release(heldMs);
    this.#call?.send({ type: "input_audio_buffer.clear" });
    show("listening");
  }

  stats() {
    return this.#call?.stats();
  }

  end() {
    this.#over = true;
    this.#call?.hangUp();
    this.#releaseMicrophone();
    this.#dialogue.end();
    this.#meters.close();
    // The context stays open until the recording is complete.
    Promise.resolve(this.#recorder?.stop()).finally(() => this.#context.close());
    $("voice").srcObject = null;
  }

  #releaseMicrophone() {
    for (const track of this.#microphone?.getTracks() ?? []) track.stop();
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
