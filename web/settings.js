// The user's settings: stored in this browser, and converted into the session's configuration.

import { tools } from "./functions.js";

const NAME = "repartee.settings";

/** Defaults: those of the server, so that nothing needs to be sent. */
export const DEFAULTS = Object.freeze({
  voice: "",
  instructions: "",
  /** Turn detection: `server_vad`, `semantic_vad`, or `none` for push-to-talk. */
  turns: "server_vad",
  threshold: 0.5,
  silenceMs: 500,
  paddingMs: 300,
  eagerness: "auto",
  interrupts: true,
  speculates: true,
  /** Slice length in ms for answers during speech; "0" for whole turns. */
  sliceMs: "0",
  captions: false,
  clock: false,
  dice: false,
  /** `auto`, `webrtc` or `websocket`. */
  transport: "auto",
  microphone: "",
  speaker: "",
  keepsSound: true,
  /** `system`, `light` or `dark`. */
  theme: "system",
});

/** Names of the settings that belong to the session. */
const OF_THE_SESSION = new Set([
  ...["voice", "instructions", "turns", "threshold", "silenceMs", "paddingMs", "eagerness"],
  ...["interrupts", "speculates", "sliceMs", "captions", "clock", "dice"],
]);

/** Settings in effect; dispatches `change` with { name, ofTheSession } as detail. */
export class Settings extends EventTarget {
  #chosen = {};

  constructor() {
    super();
    try {
      const kept = JSON.parse(localStorage.getItem(NAME) ?? "{}");
      for (const [name, value] of Object.entries(kept)) if (typeof value === typeof DEFAULTS[name]) this.#chosen[name] = value;
    } catch {
      // Storage is off, or its content is invalid: use the defaults.
    }
  }

  get(name) {
    return this.#chosen[name] ?? DEFAULTS[name];
  }

  set(name, value) {
    if (this.get(name) === value) return;
    this.#chosen[name] = value;
    this.#keep();
    this.dispatchEvent(new CustomEvent("change", { detail: { name, ofTheSession: OF_THE_SESSION.has(name) } }));
  }

  /** Resets all settings to the defaults. */
  reset() {
    for (const name of Object.keys(this.#chosen)) this.set(name, DEFAULTS[name]);
  }

  /** Returns the session's configuration, for `session.update`. */
  session() {
    return session((name) => this.get(name));
  }

  /** Returns the same, or null if it equals the server's defaults. */
  sessionIfChosen() {
    const chosen = this.session();
    return JSON.stringify(chosen) === JSON.stringify(session((name) => DEFAULTS[name])) ? null : chosen;
  }

  #keep() {
    try {
      localStorage.setItem(NAME, JSON.stringify(this.#chosen));
    } catch {
      // Storage is off: the settings last until the page is closed.
    }
  }
}

function session(get) {
  return {
    type: "realtime",
    instructions: get("instructions"),
    tools: tools(["clock", "dice"].filter(get)),
    audio: {
      input: {
        turn_detection: turnDetection(get),
        transcription: get("captions") ? {} : null,
      },
      // null is the model's default.
      output: { voice: get("voice") || null },
    },
    repartee: { speculative_start: get("speculates"), slice_ms: Number(get("sliceMs")) || null },
  };
}

function turnDetection(get) {
  const common = { type: get("turns"), interrupt_response: get("interrupts") };
  switch (get("turns")) {
    case "none":
      return null;
    case "semantic_vad":
      return { ...common, eagerness: get("eagerness") };
    default: {
      const [threshold, silence, padding] = [get("threshold"), get("silenceMs"), get("paddingMs")];
      return { ...common, threshold, silence_duration_ms: silence, prefix_padding_ms: padding };
    }
  }
}
