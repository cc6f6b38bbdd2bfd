// A new voice out of recordings: the speaker's consent, then a sample of the voice.

import { openMicrophone } from "./microphone.js";
import { KINDS } from "./recorder.js";
import { messageOf, refusal, request } from "./server.js";
import { $ } from "./view.js";

/** @import { Settings } from "./settings.js" */

/** @typedef {{ button: HTMLButtonElement, label: string }} Take */

/** Longest recording that the server takes. */
const LONGEST_MS = 60_000;

export class NewVoice {
  #settings;
  #created;
  /** @type {Take} */
  #consent = { button: $("record-consent"), label: "Record consent" };
  /** @type {Take} */
  #sample = { button: $("record-sample"), label: "Record voice" };
  /** Finished recordings. @type {Map<Take, Blob>} */
  #blobs = new Map();
  /** @type {MediaRecorder | null} */
  #recorder = null;

  /**
   * @param {Settings} settings
   * @param {(id: string) => void} created called with the id of each new voice
   */
  constructor(settings, created) {
    this.#settings = settings;
    this.#created = created;
    for (const take of [this.#consent, this.#sample]) {
      take.button.addEventListener("click", () => (this.#recorder ? this.#recorder.stop() : this.#record(take)));
    }
    $("new-voice-name").addEventListener("input", () => this.#offer());
    $("create-voice").addEventListener("click", () => this.#create());
  }

  /** Records until the button is pressed again. @param {Take} take */
  async #record(take) {
    try {
      const stream = await openMicrophone(this.#settings.get("microphone"));
      const type = KINDS.find((kind) => MediaRecorder.isTypeSupported(kind)) ?? "";
      const recorder = new MediaRecorder(stream, { mimeType: type });
      this.#recorder = recorder;
      /** @type {Blob[]} */
      const pieces = [];
      recorder.addEventListener("dataavailable", ({ data }) => pieces.push(data));
      const stopped = new Promise((resolve) => recorder.addEventListener("stop", resolve, { once: true }));
      const timer = setTimeout(() => recorder.stop(), LONGEST_MS);
      recorder.start();
      this.#label(take, "Stop");
      await stopped;
      clearTimeout(timer);
      for (const track of stream.getTracks()) track.stop();
      this.#blobs.set(take, new Blob(pieces, { type }));
      this.#label(take, `${take.label} again`);
    } catch (error) {
      status(messageOf(error));
    }
    this.#recorder = null;
    this.#offer();
  }

  async #create() {
    const { value: name } = $("new-voice-name");
    const [recording, sample] = [this.#blobs.get(this.#consent), this.#blobs.get(this.#sample)];
    if (!recording || !sample) return;
    $("create-voice").disabled = true;
    status("The model learns the voice…");
    try {
      const language = $("new-voice-language").value;
      const consent = await post("/v1/audio/voice_consents", { name, language, recording });
      const voice = await post("/v1/audio/voices", {
        name,
        consent: consent.id,
        audio_sample: sample,
        text: $("sample-text").value,
      });
      status(`The voice ${name} is ready, and chosen above.`);
      this.#created(voice.id);
    } catch (error) {
      status(messageOf(error));
    }
    this.#offer();
  }

  /**
   * @param {Take} take
   * @param {string} text
   */
  #label({ button }, text) {
    button.textContent = text;
    status("");
  }

  #offer() {
    $("create-voice").disabled = this.#blobs.size < 2 || !$("new-voice-name").value.trim();
  }
}

/**
 * @param {string} path
 * @param {Record<string, string | Blob>} fields
 */
async function post(path, fields) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) body.append(name, value);
  const reply = await request(path, { method: "POST", body });
  if (!reply.ok) throw await refusal(reply);
  return reply.json();
}

/** @param {string} text */
function status(text) {
  $("new-voice-status").textContent = text;
}
