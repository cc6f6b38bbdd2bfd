// The demo page: connects the call button and the other controls with the conversation.

import { Conversation } from "./conversation.js";
import { offerDownloads } from "./download.js";
import { Drawer } from "./drawer.js";
import { EventLog } from "./event_log.js";
import { offerEventTools } from "./event_tools.js";
import { HoldButton } from "./hold.js";
import { remember } from "./key.js";
import { NetworkReport } from "./network.js";
import { NewVoice } from "./new_voice.js";
import { ReadAloud } from "./read_aloud.js";
import { CallError, messageOf, modelCard, modelFacts } from "./server.js";
import { Settings } from "./settings.js";
import { SettingsPanel } from "./settings_panel.js";
import { started } from "./starting.js";
import { followTheme } from "./theme.js";
import { ToolEditor } from "./tool_editor.js";
import { Transcript } from "./transcript.js";
import { Turn } from "./turns.js";
import { $, alertText, noticeText, show } from "./view.js";
import { WakeLock } from "./wake_lock.js";

/** @import { Recorder } from "./recorder.js" */
/** @import { ModelCard, ModelFacts } from "./server.js" */
/** @import { Session } from "./types/events.js" */

const settings = new Settings();
const transcript = Transcript.kept();
const log = new EventLog($("log"));
const network = new NetworkReport($("network"));
const wakeLock = new WakeLock();
const panel = new SettingsPanel(settings);
const reader = new ReadAloud(settings);
const downloads = offerDownloads(transcript, () => conversation?.recorder ?? recorder);

/** The conversation in progress. @type {Conversation | null} */
let conversation = null;
/** The sound of the last conversation. @type {Recorder | null} */
let recorder = null;
/** True if the model follows a conversation; from its card. */
let remembers = true;
/** Capabilities of the model. @type {ModelFacts} */
let facts = {};

followTheme(settings);
new Drawer($("settings"), $("open-settings"));
new Drawer($("events"), $("open-events"));
new ToolEditor(settings);
new NewVoice(settings, async (voice) => {
  know(await modelFacts());
  settings.set("voice", voice);
});
offerEventTools(log, (event) => {
  if (!conversation?.connected) return false;
  conversation.send(event);
  return true;
});

/** Shows the model's capabilities. @param {ModelFacts} news those that the server has told */
function know(news) {
  facts = { ...facts, ...news };
  panel.refresh(facts);
  reader.refresh(facts);
}

/** Begins a conversation. @param {boolean} spoken false to leave the microphone closed until it is unmuted */
async function begin(spoken) {
  alertText("");
  noticeText("");
  $("key-form").hidden = true;
  const mine = new Conversation(settings, transcript, remembers, spoken);
  conversation = mine;
  mine.addEventListener("event", ({ detail }) => {
    log.add("received", detail);
    if (detail.type === "session.created") connected(detail.session);
    if (detail.type === "response.done") downloads.offer();
  });
  mine.addEventListener("sent", ({ detail }) => log.add("sent", detail));
  mine.addEventListener("ended", ({ detail }) => {
    if (conversation === mine) end(detail);
  });
  $("mute").setAttribute("aria-pressed", String(!spoken));
  wakeLock.hold();
  network.follow(mine);
  try {
    await mine.start();
    // From now on browsers name the devices, and a server with keys names the voices.
    know(await modelFacts());
  } catch (error) {
    if (conversation === mine) end(error);
  }
}

/** @param {Session} session */
function connected(session) {
  $("model").textContent ||= ("model" in session && session.model) || "";
  // Focus, so that the space bar holds the button.
  if (settings.get("turns") === "none" && document.activeElement === $("call")) $("hold").focus();
}

/** Ends the conversation. @param {unknown} [problem] error that ended it */
function end(problem) {
  recorder = conversation?.recorder ?? recorder;
  conversation?.end();
  conversation = null;
  wakeLock.release();
  network.follow(null);
  show("idle");
  noticeText("");
  transcript.keep();
  downloads.offer();
  const needsKey = problem instanceof CallError && problem.needsKey;
  $("key-form").hidden = !needsKey;
  if (needsKey) $("key").focus();
  if (problem) alertText(problem instanceof CallError ? problem.message : `Something went wrong: ${messageOf(problem)}`);
}

/** @param {boolean} muted */
async function setMuted(muted) {
  $("mute").setAttribute("aria-pressed", String(muted));
  const opened = await conversation?.mute(muted || settings.get("turns") === "none");
  if (opened === false) $("mute").setAttribute("aria-pressed", "true");
}

/** Asks in writing; begins a call without the microphone if there is none. @param {string} text */
async function write(text) {
  if (!conversation) begin(false);
  const mine = conversation;
  // Begun, unless this browser has no sound.
  if (!mine) return;
  if (!mine.connected) await new Promise((resolve) => mine.addEventListener("opened", resolve, { once: true }));
  if (conversation === mine) mine.write(text);
}

/** @param {ModelCard} card */
function showCard({ name, ask = [], note = "", capabilities = {} }) {
  know(capabilities);
  $("model").textContent = name ?? "";
  const chips = ask.map((question) => {
    const chip = Object.assign(document.createElement("button"), { type: "button", textContent: question });
    chip.addEventListener("click", () => write(question));
    const item = document.createElement("li");
    item.append(chip);
    return item;
  });
  $("asks").replaceChildren(...chips);
  $("note").textContent = note;
  $("hints").hidden = ask.length === 0;
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  remember($("key").value.trim());
  $("call").click();
});
$("call").addEventListener("click", () => (conversation ? end() : begin(facts.hears ?? true)));
$("mute").addEventListener("click", () => setMuted($("mute").getAttribute("aria-pressed") !== "true"));
$("stop").addEventListener("click", () => conversation?.stopAnswer());
$("write").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (text) write(text);
  $("text").value = "";
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) conversation?.stopAnswer();
});
new HoldButton($("hold"), {
  held: () => conversation?.connected && conversation.hold(),
  released: (ms) => conversation?.connected && conversation.release(ms),
});
settings.addEventListener("change", ({ detail }) => {
  conversation?.changed(detail);
  if (detail.name === "turns" && conversation) setMuted(document.body.dataset.input === "written");
});
// Only now: a server with keys refuses requests without one.
$("settings").addEventListener("shown", async () => know(await modelFacts()));
$("clear").addEventListener("click", () => {
  transcript.clear();
  $("turns").replaceChildren();
  $("hints").open = true;
  downloads.offer();
});
window.addEventListener("pagehide", () => end());

for (const turn of transcript.turns) Turn.past($("turns"), turn);
$("hints").open = transcript.turns.length === 0;
downloads.offer();
started().then(modelCard).then((card) => {
  remembers = card.remembers ?? true;
  showCard(card);
});
