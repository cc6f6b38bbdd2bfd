// The parts of the page that more than one module changes: state, alert, notice, first sound.

export const $ = (id) => document.getElementById(id);

const WORDS = {
  idle: "Not connected",
  connecting: "Connecting…",
  redialling: "Connection lost, calling again…",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking…",
  speaking: "Speaking",
};

/** Shows what the conversation is doing; `state` is a key of WORDS. */
export function show(state) {
  document.body.dataset.state = state;
  const holds = state === "listening" && document.body.dataset.turns === "none";
  $("status").textContent = holds ? "Hold the button to talk" : WORDS[state];
  $("call-label").textContent = state === "idle" ? "Start talking" : "Hang up";
}

/** What went wrong; empty to take it away. */
export function alertText(text) {
  $("alert").textContent = text;
  $("alert").hidden = !text;
}

/** What a person should know of this call, though nothing is wrong; empty to take it away. */
export function noticeText(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

/** The time to the first sound, as shown; null for none. */
export function showFirstSound(ms) {
  $("ttfp").textContent = ms === null ? "–" : `${ms} ms`;
}
