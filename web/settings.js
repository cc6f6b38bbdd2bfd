// The user's settings: stored in this browser, and converted into the session's configuration.

import { readOwnTools, tools } from "./functions.js";

const NAME = "repartee.settings";

/** @import { Eagerness, SessionPatch, TurnDetection, Patch } from "./types/events.js" */
/** @import { EventTargetOf } from "./types/page.js" */

/**
 * Values of the settings.
 *
 * @typedef {object} SettingValues
 * @property {string} voice empty for the model's default
 * @property {string} instructions
 * @property {"server_vad" | "semantic_vad" | "none"} turns turn detection; `none` for push-to-talk
 * @property {number} threshold
 * @property {number} silenceMs
 * @property {number} paddingMs
 * @property {Eagerness} eagerness
 * @property {boolean} interrupts
 * @property {boolean} speculates
 * @property {string} sliceMs slice length in ms for answers during speech; "0" for whole turns
 * @property {boolean} captions
 * @property {boolean} clock
 * @property {boolean} dice
 * @property {string} ownTools functions of the user, as JSON; see OwnTool
 * @property {"auto" | "webrtc" | "websocket"} transport
 * @property {string} microphone id; empty for the system's default
 * @property {string} speaker id; empty for the system's default
 * @property {boolean} keepsSound
 * @property {"system" | "light" | "dark"} theme
 */

/** @typedef {keyof SettingValues} SettingName */
/** @typedef {<Name extends SettingName>(name: Name) => SettingValues[Name]} SettingGetter */
/** @typedef {{ name: SettingName, ofTheSession: boolean }} SettingChange */

/** Defaults: those of the server, so that nothing needs to be sent. @type {Readonly<SettingValues>} */
export const DEFAULTS = Object.freeze({
  voice: "",
  instructions: "",
  turns: "server_vad",
  threshold: 0.5,
  silenceMs: 500,
  paddingMs: 300,
  eagerness: "auto",
  interrupts: true,
  speculates: true,
  sliceMs: "0",
  captions: false,
  clock: false,
  dice: false,
  ownTools: "[]",
  transport: "auto",
  microphone: "",
  speaker: "",
  keepsSound: true,
  theme: "system",
});

/** Names of the settings that belong to the session. */
const OF_THE_SESSION = /** @type {Set<SettingName>} */ (new Set([
  ...["voice", "instructions", "turns", "threshold", "silenceMs", "paddingMs", "eagerness"],
  ...["interrupts", "speculates", "sliceMs", "captions", "clock", "dice", "ownTools"],
]));

/** All names. */
const NAMES = /** @type {SettingName[]} */ (Object.keys(DEFAULTS));
/** Names of the functions to try. */
const FUNCTIONS = /** @type {const} */ (["clock", "dice"]);

/** Settings in effect; dispatches `change` with a SettingChange as detail. */
export class Settings extends /** @type {EventTargetOf<{ change: SettingChange }>} */ (EventTarget) {
  /** @type {Partial<Record<SettingName, SettingValues[SettingName]>>} */
  #chosen = {};

  constructor() {
    super();
    try {
      const kept = JSON.parse(localStorage.getItem(NAME) ?? "{}");
      for (const name of NAMES) if (typeof kept[name] === typeof DEFAULTS[name]) this.#chosen[name] = kept[name];
    } catch {
      // Storage is off, or its content is invalid: use the defaults.
    }
  }

  /**
   * @template {SettingName} Name
   * @param {Name} name
   */
  get(name) {
    return /** @type {SettingValues[Name]} */ (this.#chosen[name] ?? DEFAULTS[name]);
  }

  /**
   * @template {SettingName} Name
   * @param {Name} name
   * @param {SettingValues[Name]} value
   */
  set(name, value) {
    if (this.get(name) === value) return;
    this.#chosen[name] = value;
    this.#keep();
    this.dispatchEvent(new CustomEvent("change", { detail: { name, ofTheSession: OF_THE_SESSION.has(name) } }));
  }

  /** Resets all settings to the defaults. */
  reset() {
    for (const name of NAMES) if (name in this.#chosen) this.set(name, DEFAULTS[name]);
  }

  /** Returns the functions of the user. */
  ownTools() {
    return readOwnTools(this.get("ownTools"));
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

/**
 * @param {SettingGetter} get
 * @returns {SessionPatch}
 */
function session(get) {
  return {
    type: "realtime",
    // null is the server's default.
    instructions: get("instructions") || null,
    tools: tools(FUNCTIONS.filter((name) => get(name)), readOwnTools(get("ownTools"))),
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

/**
 * @param {SettingGetter} get
 * @returns {Patch<TurnDetection | null>}
 */
function turnDetection(get) {
  const common = { interrupt_response: get("interrupts") };
  switch (get("turns")) {
    case "none":
      return null;
    case "semantic_vad":
      return { type: "semantic_vad", ...common, eagerness: get("eagerness") };
    default: {
      const [threshold, silence, padding] = [get("threshold"), get("silenceMs"), get("paddingMs")];
      return { type: "server_vad", ...common, threshold, silence_duration_ms: silence, prefix_padding_ms: padding };
    }
  }
}
