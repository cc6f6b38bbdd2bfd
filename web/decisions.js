// The server's decisions about the caller's sound, in words: a list below a turn's stages.

/** @import { Turn } from "./turns.js" */
/** @import { DecisionMade } from "./types/events.js" */

/** Largest number of decisions kept for a turn. */
export const MAX_DECISIONS = 60;

/** Decision -> its words. @type {Record<string, string>} */
const DECISIONS = {
  turn_started: "Turn begins",
  interrupted: "Answer interrupted",
  playback_paused: "Answer pauses",
  playback_resumed: "Answer plays on",
  voice_dismissed: "No interruption",
  turn_paused: "Turn may be over",
  turn_resumed: "Turn goes on",
  turn_ended: "Turn is over",
  echo_found: "Echo found and cancelled",
  echo_not_found: "No echo found",
  echo_cancelling_ended: "Echo no longer sought",
  noise_reduced: "Noise reduced",
  noise_left: "Noise left as it is",
};

/** Reason -> its words. @type {Record<string, string>} */
const REASONS = {
  voice: "a voice",
  loud_voice: "a voice louder than any echo",
  voice_went_on: "the voice went on",
  voice_began_again: "a short voice began again",
  voice_ended: "the voice was short or soft",
  network_sure: "the voice sounds like an interruption",
  network_unsure: "the voice does not sound like an interruption",
  network_at_end: "the short voice sounds like a command",
  longest_wait: "the voice went on for the longest wait",
  playback_ended: "the answer had ended",
  silence: "silence",
  model: "the turn-detection model judged the pause",
  no_voice: "no sound that only a voice makes",
  longest_turn: "the longest turn",
  playback: "playback and microphone compared",
  near_field: "close microphone",
  far_field: "microphone in the room",
  session: "by the settings",
  steady_noise: "the noise is steady",
  unsteady_noise: "the noise is not steady",
};

/** Decisions about the sound of a turn that is not shown yet. */
export class NextDecisions {
  /** Null while there is none. @type {DecisionMade[] | null} */
  #made = null;

  /**
   * Adds a decision: from a turn's first voice on to the next turn, before it to the current one.
   *
   * @param {DecisionMade} made
   * @param {Turn | null} turn the current one
   */
  add(made, turn) {
    if (made.decision === "turn_started" || made.decision === "interrupted" || !turn) this.#made ??= [];
    if (!this.#made) turn?.decided(made);
    else if (this.#made.length < MAX_DECISIONS) this.#made.push(made);
  }

  /** Gives the decisions to their turn. @param {Turn} turn */
  give(turn) {
    for (const made of this.#made ?? []) turn.decided(made);
    this.#made = null;
  }

  clear() {
    this.#made = null;
  }
}

/**
 * Returns a decision with its reason and figures as a sentence.
 *
 * @param {DecisionMade} made
 */
export function sentence({ decision, reason, probability, voice_ms: voice, silence_ms: silence }) {
  const figures = [
    voice === undefined ? "" : `voice ${voice} ms`,
    silence === undefined ? "" : `silence ${silence} ms`,
    probability === undefined ? "" : `probability ${probability.toFixed(2)}`,
  ].filter(Boolean);
  const words = `${DECISIONS[decision] ?? decision}: ${REASONS[reason] ?? reason}`;
  return figures.length ? `${words} (${figures.join(", ")})` : words;
}

/**
 * Shows the decisions, each with its time in the call; replaces the earlier list.
 *
 * @param {HTMLElement} details
 * @param {DecisionMade[]} decisions
 */
export function showDecisions(details, decisions) {
  details.querySelector(".decisions")?.remove();
  if (decisions.length === 0) return;
  const list = document.createElement("ol");
  list.className = "decisions";
  for (const made of decisions) {
    const item = document.createElement("li");
    const at = Object.assign(document.createElement("span"), { textContent: `${(made.audio_ms / 1000).toFixed(2)} s` });
    const text = Object.assign(document.createElement("span"), { textContent: sentence(made) });
    item.append(at, text);
    list.append(item);
  }
  details.append(list);
}
