// The demo page: one button, the conversation's transcript, the time to first sound.

import { Call, CallError, iceServers, openMicrophone } from "./call.js";
import { remember } from "./key.js";
import { Memory } from "./memory.js";
import { LevelMeter } from "./sound.js";
import { Turn } from "./turns.js";

const $ = (id) => document.getElementById(id);
/** How often levels and onset are read; well within what a LevelMeter looks back. */
const READ_EVERY_MS = 20;
/** The meters report their value to a screen reader this often. */
const REPORT_EVERY_MS = 1000;
/** A lost connection is called again for so long, with growing pauses. */
const REDIAL_FOR_MS = 30000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;

const WORDS = {
  idle: "Not connected",
  connecting: "Connecting…",
  redialling: "Connection lost, calling again…",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking…",
  speaking: "Speaking",
};

/** The conversation in progress, or null. */
let conversation = null;

/** One conversation: mostly one call, more if connections are lost. */
class Conversation {
  #context;
  #call = null;
  #microphone = null;
  /** When the connection was lost, until there is a new one; on the clock of performance.now(). */
  #lostAt = null;
  #memory = new Memory();
  #meters = [];
  #reader = 0;
  #reportedAt = 0;
  /** The turn that is being spoken or answered. */
  #turn = null;
  /** Response id -> its turn. */
  #responseTurns = new Map();
  /** When the last turn was committed, until its first sound is heard; on the clock of performance.now(). */
  #committedAt = null;
  #speechStartMs = 0;
  /** Items of finished turns that a model without memory should not see again. */
  #items = [];
  #remembers;
  #over = false;

  constructor(remembers) {
    this.#remembers = remembers;
    // Made inside the tap: a browser lets only a gesture start sound.
    this.#context = new AudioContext();
    this.#context.resume();
  }

  async start() {
    show("connecting");
    // First, because a server that needs a key refuses here, before the browser asks for the microphone.
    const relays = await iceServers();
    const microphone = await openMicrophone();
    this.#microphone = microphone;
    if (this.#over) return this.#releaseMicrophone();
    for (const track of microphone.getAudioTracks()) {
      track.addEventListener("ended", () => {
        if (!this.#over) end(new CallError("The microphone went away, so the call was ended."));
      });
    }
    this.#meters = [new LevelMeter(this.#context, microphone)];
    this.#reader = setInterval(() => this.#read(), READ_EVERY_MS);
    await this.#dial(relays);
  }

  async #dial(relays) {
    const call = new Call(this.#microphone, relays);
    this.#call = call;
    call.addEventListener("event", ({ detail }) => this.#handle(detail));
    call.addEventListener("open", () => this.#opened());
    call.addEventListener("lost", ({ detail }) => this.#redial(detail));
    call.addEventListener("sound", ({ detail }) => this.#play(detail));
    await call.connect();
  }

  #opened() {
    if (this.#lostAt !== null) {
      this.#lostAt = null;
      alertText("");
      // A model that does not use the history needs none of it.
      if (this.#remembers) for (const event of this.#memory.events()) this.#call.send(event);
    }
    show("listening");
  }

  /** Calls again after a retryable loss of the connection; gives up after a while. */
  async #redial(problem) {
    this.#lostAt ??= performance.now();
    this.#turn?.finish("The connection was lost.");
    this.#turn = null;
    this.#committedAt = null;
    this.#responseTurns.clear();
    this.#items = [];
    show("redialling");
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      await new Promise((resolve) => setTimeout(resolve, pause));
      if (this.#over) return;
      try {
        return await this.#dial(await iceServers());
      } catch (error) {
        if (this.#over) return;
        if (!error.retryable) return end(error);
        if (performance.now() - this.#lostAt > REDIAL_FOR_MS) return end(problem);
      }
    }
  }

  #releaseMicrophone() {
    for (const track of this.#microphone?.getTracks() ?? []) track.stop();
  }

  end() {
    this.#over = true;
    clearInterval(this.#reader);
    this.#call?.hangUp();
    this.#releaseMicrophone();
    this.#turn?.finish();
    for (const meter of this.#meters) meter.close();
    this.#context.close();
    $("voice").srcObject = null;
    setLevel($("you"), 0, true);
    setLevel($("it"), 0, true);
  }

  #play(stream) {
    // The element first: without it some browsers give an analyser nothing.
    $("voice").srcObject = stream;
    $("voice").play().catch(() => alertText("The browser blocked the sound: tap the button twice to start again."));
    this.#meters[1]?.close();
    this.#meters[1] = new LevelMeter(this.#context, stream);
  }

  #read() {
    const report = performance.now() - this.#reportedAt > REPORT_EVERY_MS;
    if (report) this.#reportedAt = performance.now();
    const [you, it] = this.#meters;
    setLevel($("you"), you.level(), report);
    if (!it) return;
    setLevel($("it"), it.level(), report);
    if (this.#committedAt === null) return;
    const onset = it.onsetAfter(this.#committedAt);
    if (onset === null) return;
    const text = `${Math.round(onset - this.#committedAt)} ms`;
    this.#committedAt = null;
    $("ttfp").textContent = text;
    this.#turn?.firstSound(text);
  }

  /** Handles one server event; types that the page does not use are ignored. */
  #handle(event) {
    switch (event.type) {
      case "session.created":
        $("model").textContent ||= event.session?.model ?? "";
        break;
      case "input_audio_buffer.speech_started":
        // The hints make room for the conversation.
        $("hints").open = false;
        this.#speechStartMs = event.audio_start_ms;
        show("hearing");
        break;
      case "input_audio_buffer.speech_stopped":
        this.#turn = new Turn($("turns"));
        this.#memory.asked();
        this.#turn.lasted(event.audio_end_ms - this.#speechStartMs);
        show("thinking");
        break;
      case "input_audio_buffer.committed":
        this.#committedAt = performance.now();
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.#turn?.said(event.transcript);
        this.#memory.transcribed(event.transcript);
        break;
      case "conversation.item.done":
        this.#items.push(event.item.id);
        break;
      case "response.created":
        this.#turn ??= new Turn($("turns"));
        this.#responseTurns.set(event.response.id, this.#turn);
        this.#memory.answers(event.response.id);
        break;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.#responseTurns.get(event.response_id)?.add(event.delta);
        this.#memory.add(event.response_id, event.delta);
        break;
      case "response.done":
        this.#responseDone(event.response);
        break;
      case "output_audio_buffer.started":
        show("speaking");
        break;
      case "output_audio_buffer.cleared":
        this.#responseTurns.get(event.response_id)?.interrupted();
        this.#played(event.response_id);
        break;
      case "output_audio_buffer.stopped":
        this.#played(event.response_id);
        show("listening");
        break;
      case "error":
        alertText(`The server reports: ${event.error.message}`);
        break;
    }
  }

  #responseDone({ id, status, status_details: details, output = [] }) {
    const turn = this.#responseTurns.get(id);
    if (status === "failed") turn?.finish(details?.error?.message ?? "The answer failed.");
    else if (status === "incomplete") turn?.finish("The answer was cut off at its limit.");
    else turn?.finish();
    if (status === "cancelled" && details?.reason === "turn_detected") turn?.interrupted();
    // With sound the state follows the playback, which ends later.
    const spoken = output.some((item) => item.content?.some((part) => part.type === "output_audio"));
    if (!spoken && status !== "cancelled") show("listening");
  }

  /** A response was played to its end, or up to the barge-in. */
  #played(response) {
    this.#responseTurns.delete(response);
    if (this.#remembers) return;
    for (const id of this.#items.splice(0)) this.#call.send({ type: "conversation.item.delete", item_id: id });
  }
}

function show(state) {
  document.body.dataset.state = state;
  $("status").textContent = WORDS[state];
  $("call-label").textContent = state === "idle" ? "Start talking" : "Hang up";
}

function setLevel(bar, level, report) {
  bar.style.setProperty("--level", level.toFixed(3));
  if (report) bar.setAttribute("aria-valuenow", Math.round(level * 100));
}

function alertText(text) {
  $("alert").textContent = text;
  $("alert").hidden = !text;
}

function end(problem) {
  conversation?.end();
  conversation = null;
  show("idle");
  $("key-form").hidden = !problem?.needsKey;
  if (problem?.needsKey) $("key").focus();
  if (problem) alertText(problem instanceof CallError ? problem.message : `Something went wrong: ${problem.message}`);
}

/** The served checkpoint's card; every field may be missing. */
const about = fetch("model.json")
  .then((reply) => (reply.ok ? reply.json() : {}))
  .catch(() => ({}));

function showAbout({ name, ask = [], note = "" }) {
  $("model").textContent = name ?? "";
  $("asks").replaceChildren(
    ...ask.map((question) => Object.assign(document.createElement("li"), { textContent: question })),
  );
  $("note").textContent = note;
  $("hints").hidden = ask.length === 0;
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  remember($("key").value.trim());
  $("call").click();
});
$("call").addEventListener("click", async () => {
  if (conversation) return end();
  alertText("");
  $("key-form").hidden = true;
  const mine = new Conversation(remembers);
  conversation = mine;
  try {
    await mine.start();
  } catch (error) {
    if (conversation === mine) end(error);
  }
});
window.addEventListener("pagehide", () => end());

let remembers = true;
about.then((card) => {
  remembers = card.remembers ?? true;
  showAbout(card);
});
