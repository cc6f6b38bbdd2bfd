// The tab that reads a text aloud, for models that speak a given text; those that do nothing else have no other tab.

import { save } from "./download.js";
import { samplesOf, wave } from "./pcm.js";
import { Player } from "./player.js";
import { messageOf, refusal, request } from "./server.js";
import { $ } from "./view.js";

/** @import { ModelFacts } from "./server.js" */
/** @import { Settings } from "./settings.js" */

/** Sample rate of the response format `pcm`, in Hz. */
const RATE = 24_000;
const RESPONSE = "speech";

export class ReadAloud {
  #settings;
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {Player | null} */
  #player = null;
  /** @type {AbortController | null} */
  #request = null;
  /** Samples of the last text. @type {Float32Array[]} */
  #sound = [];

  /** @param {Settings} settings */
  constructor(settings) {
    this.#settings = settings;
    const tabs = [$("mode-talk"), $("mode-read")];
    tabs.forEach((tab, at) => {
      tab.addEventListener("click", () => choose(at === 1));
      tab.addEventListener("keydown", ({ key }) => {
        if (key !== "ArrowLeft" && key !== "ArrowRight") return;
        choose(at === 0);
        tabs[1 - at]?.focus();
      });
    });
    $("read-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#read($("read-text").value);
    });
    $("read-stop").addEventListener("click", () => this.#stop());
    $("read-save").addEventListener("click", () => save(wave(this.#sound, RATE), "wav"));
  }

  /** Shows the tabs that the model has. @param {ModelFacts} facts */
  refresh({ speech = false, speech_only: only = false }) {
    $("modes").hidden = !speech || only;
    if (only) choose(true);
    else if (!speech) choose(false);
  }

  /** @param {string} text */
  async #read(text) {
    this.#stop();
    if (!text.trim()) return;
    const mine = new AbortController();
    const context = this.#context ?? new AudioContext({ sampleRate: RATE });
    const player = new Player(context);
    [this.#request, this.#context, this.#player, this.#sound] = [mine, context, player, []];
    // Within the tap: browsers start audio only on a user gesture.
    context.resume();
    $("reader").srcObject = player.stream;
    $("reader").play().catch(() => {});
    player.addEventListener("stopped", () => status(`Read, ${seconds(this.#sound)} s.`));
    status("Waiting for the first sound…");
    $("read-save").disabled = true;
    const begun = performance.now();
    try {
      const voice = this.#settings.get("voice");
      const body = JSON.stringify({ input: text, response_format: "pcm", ...(voice && { voice }) });
      const headers = { "Content-Type": "application/json" };
      const reply = await request("/v1/audio/speech", { method: "POST", headers, body, signal: mine.signal });
      if (!reply.ok || !reply.body) throw await refusal(reply);
      for await (const samples of samplesIn(reply.body)) {
        if (mine.signal.aborted) return;
        if (this.#sound.length === 0) status(`Reading; first sound after ${Math.round(performance.now() - begun)} ms.`);
        this.#sound.push(samples);
        player.push(RESPONSE, RESPONSE, samples);
      }
      player.finish(RESPONSE);
      $("read-save").disabled = this.#sound.length === 0;
    } catch (error) {
      if (!mine.signal.aborted) status(messageOf(error));
    }
  }

  #stop() {
    this.#request?.abort();
    this.#player?.clear();
    status("");
  }
}

/** Shows one of the tabs. @param {boolean} reads */
function choose(reads) {
  document.body.dataset.mode = reads ? "read" : "talk";
  $("talk").hidden = reads;
  $("read").hidden = !reads;
  for (const [tab, chosen] of /** @type {const} */ ([[$("mode-talk"), !reads], [$("mode-read"), reads]])) {
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
}

/**
 * Yields the samples of a body of 16 bit little-endian; a chunk may end within a sample.
 *
 * @param {ReadableStream<Uint8Array>} body
 */
async function* samplesIn(body) {
  const reader = body.getReader();
  let rest = new Uint8Array();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const bytes = new Uint8Array(rest.length + value.length);
    bytes.set(rest);
    bytes.set(value, rest.length);
    const whole = bytes.length - (bytes.length % 2);
    rest = bytes.slice(whole);
    if (whole) yield samplesOf(bytes.subarray(0, whole));
  }
}

/** @param {Float32Array[]} sound */
function seconds(sound) {
  return (sound.reduce((sum, { length }) => sum + length, 0) / RATE).toFixed(1);
}

/** @param {string} text */
function status(text) {
  $("read-status").textContent = text;
}
