// The caller's side of a conversation: silence until the microphone is opened, for a conversation that began in writing.

import { openMicrophone } from "./microphone.js";
import { CallError } from "./server.js";

/** @import { EventTargetOf } from "./types/page.js" */

/** @typedef {{ opened: MediaStream, lost: CallError }} VoiceInputEvents */

/** Dispatches `opened` with each microphone's stream, and `lost` if the microphone is disconnected. */
export class VoiceInput extends /** @type {EventTargetOf<VoiceInputEvents>} */ (EventTarget) {
  #stream;
  #isOpen = false;
  #muted;
  #over = false;

  /**
   * @param {AudioContext} context
   * @param {boolean} muted
   */
  constructor(context, muted) {
    super();
    this.#stream = context.createMediaStreamDestination().stream;
    this.#muted = muted;
  }

  /** Stream to send. */
  get stream() {
    return this.#stream;
  }

  /** True if it is a microphone. */
  get isOpen() {
    return this.#isOpen;
  }

  /** Opens a microphone in place of the present stream. Throws a CallError. @param {string} device id; empty for the system's default */
  async open(device) {
    const stream = await openMicrophone(device);
    const before = this.#stream;
    [this.#stream, this.#isOpen] = [stream, true];
    stop(before);
    if (this.#over) return stop(stream);
    for (const track of stream.getAudioTracks()) {
      track.enabled = !this.#muted;
      track.addEventListener("ended", () => {
        if (!this.#over) this.#tell("lost", new CallError("The microphone was disconnected, so the call ended."));
      });
    }
    this.#tell("opened", stream);
  }

  /** @param {boolean} muted */
  mute(muted) {
    this.#muted = muted;
    for (const track of this.#stream.getAudioTracks()) track.enabled = !muted;
  }

  close() {
    this.#over = true;
    stop(this.#stream);
  }

  /**
   * @template {keyof VoiceInputEvents} Type
   * @param {Type} type
   * @param {VoiceInputEvents[Type]} detail
   */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** @param {MediaStream} stream */
function stop(stream) {
  for (const track of stream.getTracks()) track.stop();
}
