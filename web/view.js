// The parts of the page that more than one module changes: state, alert, notice, first sound.

/** @import { PageElements } from "./types/elements.js" */

/**
 * Returns the element of this id.
 *
 * @template {keyof PageElements} Id
 * @param {Id} id
 */
export const $ = (id) => /** @type {PageElements[Id]} */ (document.getElementById(id));

const WORDS = {
  idle: "Not connected",
  connecting: "Connecting…",
  redialling: "Connection lost, calling again…",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking…",
  speaking: "Speaking",
};

/** Shows the conversation's state. @param {keyof typeof WORDS} state */
export function show(state) {
  document.body.dataset.state = state;
  const { turns, input } = document.body.dataset;
  const listens = state === "listening";
  if (listens && turns === "none") $("status").textContent = "Hold the button to talk";
  else $("status").textContent = listens && input === "written" ? "Write, or unmute to speak" : WORDS[state];
  $("call-label").textContent = state === "idle" ? "Start talking" : "Hang up";
}

/** Shows an error; an empty text hides it. @param {string} text */
export function alertText(text) {
  $("alert").textContent = text;
  $("alert").hidden = !text;
}

/** Shows a notice about this call; an empty text hides it. @param {string} text */
export function noticeText(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

/** Notice of an interrupted connection. */
const INTERRUPTED = "Nothing arrives from the server at the moment. The call goes on as soon as the network is back.";

/** Shows that nothing arrives from the server, or that it does again. @param {boolean} interrupted */
export function showInterrupted(interrupted) {
  if (interrupted) noticeText(INTERRUPTED);
  else if ($("notice").textContent === INTERRUPTED) noticeText("");
}

/** Shows the time to first sound; null for none. @param {number | null} ms */
export function showFirstSound(ms) {
  $("ttfp").textContent = ms === null ? "–" : `${ms} ms`;
}
