// Speaks questions to the demo page, one after the other in one call, and records its answers.
//
// Usage: node conversation.mjs URL FOLDER QUESTION.wav...
//
// A real Chromium opens the page, the button is clicked, and its fake microphone plays the questions with silence between them.
// What the page's own <audio> element plays is recorded, the N-th answer to FOLDER/N.wav. Prints one JSON object: what the page
// showed and what its receiver reports of each answer's sound (see `reception`),
// {turns: [{recording, answer, firstSound, reception}], states, alert, audible}.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { MICROPHONE, record, recording, wave, withPage, writeMicrophone } from "./browser.mjs";

/** @import { Page } from "playwright-core" */

const RATE = 24000;
/** Silence before the question, until the call is connected; a busy machine starts a browser slowly. */
const LEAD_S = 4;
/** Between the questions: longer than any of the answers and the wait for it. */
const BETWEEN_S = Number(process.env.REPARTEE_BETWEEN_S) || 8;
/** From the end of one answer, or the click, to the end of the next. */
const ANSWERED_WITHIN_MS = 60_000;
/** Delay of the network's buffers after the server's last packet. */
const TAIL_MS = 500;

/** Runs in the page before its own scripts: notes every state that the page shows, and its connection. */
function notice() {
  window.states = [];
  window.RTCPeerConnection = class extends RTCPeerConnection {
    /** @param {[RTCConfiguration?]} settings */
    constructor(...settings) {
      super(...settings);
      window.connection = this;
    }
  };
  addEventListener("DOMContentLoaded", () => {
    const note = () => window.states.push(document.body.dataset.state);
    new MutationObserver(note).observe(document.body, { attributes: true, attributeFilter: ["data-state"] });
  });
}

/** Runs in the page: returns true once `count` answers were spoken to their end, or an error shows. @param {number} count */
function spoken(count) {
  if (!document.querySelector("#alert").hidden) return true;
  const begun = window.states.filter((state) => state === "speaking").length;
  return begun === count && document.body.dataset.state !== "speaking" && !document.querySelector("#turns [aria-busy]");
}

/** Runs in the page: returns the visible state. */
function seen() {
  /** @param {string} selector */
  const texts = (selector) => [...document.querySelectorAll(selector)].map((element) => element.textContent);
  const { paused, muted, volume } = document.querySelector("audio");
  const audible = !paused && !muted && volume === 1;
  return { answers: texts(".answer"), times: texts(".time"), alert: texts("#alert")[0], states: window.states, audible };
}

/** Runs in the page: returns the receiver's statistics since the last call. */
async function reception() {
  const reports = [...(await window.connection.getStats()).values()];
  /** @type {Record<string, number>} */
  const now = reports.find(({ type, kind }) => type === "inbound-rtp" && kind === "audio");
  const { last = {}, stalledBeforeMs = 0 } = window;
  /** @param {string} name of a counter, which Chromium has */
  const since = (name) => (now[name] ?? NaN) - (last[name] ?? 0);
  /** @param {string} name of a counter of samples */
  const ms = (name) => (since(name) * 1000) / 48000;
  window.last = now;
  window.stalledBeforeMs = window.stalledMs;
  return {
    received: since("packetsReceived"),
    // Packets that never came, or came too late to be played.
    missed: since("packetsLost") + since("packetsDiscarded"),
    // Sound that was made up for want of packets, other than silence.
    concealedMs: ms("concealedSamples") - ms("silentConcealedSamples"),
    // Sound that was added or taken away so that the next packets come in time.
    stretchedMs: ms("insertedSamplesForDeceleration") + ms("removedSamplesForAcceleration"),
    stalledMs: window.stalledMs - stalledBeforeMs,
  };
}

/**
 * @param {Page} page
 * @param {string} url
 * @param {string} folder of the recordings
 * @param {number} count of the questions
 */
async function converse(page, url, folder, count) {
  await page.addInitScript(notice);
  await page.goto(url);
  await page.waitForLoadState("networkidle");
  await page.click("#call");
  await page.waitForFunction(() => document.querySelector("audio").srcObject);
  await page.evaluate(record);
  /** @type {{ recording: string, reception: object }[]} */
  const heard = [];
  for (let turn = 0; turn < count; turn += 1) {
    await page.waitForFunction(spoken, turn + 1, { timeout: ANSWERED_WITHIN_MS });
    await page.waitForTimeout(TAIL_MS);
    const file = join(folder, `${turn}.wav`);
    heard.push({ recording: file, reception: await page.evaluate(reception) });
    await writeFile(file, wave(RATE, Buffer.from(await page.evaluate(recording, RATE), "base64")));
  }
  const { answers, times, states, alert, audible } = await page.evaluate(seen);
  await page.click("#call");
  await page.waitForFunction(() => document.body.dataset.state === "idle");
  const turns = answers.map((answer, turn) => ({ ...heard[turn], answer, firstSound: times[turn] }));
  return { turns, states, alert, audible };
}

const [url, folder, ...questions] = process.argv.slice(2);
const microphone = join(folder, "microphone.wav");
await writeMicrophone(microphone, questions, LEAD_S, BETWEEN_S);
const result = await withPage(MICROPHONE.file(microphone), (page) => converse(page, url, folder, questions.length));
console.log(JSON.stringify(result));
