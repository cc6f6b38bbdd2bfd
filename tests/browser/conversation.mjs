// Speaks questions to the demo page, one after the other in one call, and records what it answers.
//
// Usage: node conversation.mjs URL FOLDER QUESTION.wav...
//
// A real Chromium opens the page, the button is clicked, and its fake microphone plays the questions with silence between them.
// What the page's own <audio> element plays is recorded, the N-th answer to FOLDER/N.wav. Prints one JSON object: what the page
// showed, {turns: [{recording, answer, firstSound}], states, alert}.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { MICROPHONE, record, recording, wave, withPage, writeMicrophone } from "./browser.mjs";

const RATE = 16000;
/** The call must stand before the question begins; a busy machine takes its time to start a browser. */
const LEAD_S = 4;
/** Between the questions: longer than any of the answers and the wait for it. */
const BETWEEN_S = 8;
/** From the end of one answer, or the click, to the end of the next. */
const ANSWERED_WITHIN_MS = 60_000;
/** What the network's buffers still hold when the server has played its last packet. */
const TAIL_MS = 500;

/** Runs in the page before its own scripts: notes every state that the page shows. */
function noteStates() {
  window.states = [];
  addEventListener("DOMContentLoaded", () => {
    const note = () => window.states.push(document.body.dataset.state);
    new MutationObserver(note).observe(document.body, { attributes: true, attributeFilter: ["data-state"] });
  });
}

/** Runs in the page: whether `count` answers were spoken to their end, or something went wrong. */
function spoken(count) {
  if (!document.querySelector("#alert").hidden) return true;
  const begun = window.states.filter((state) => state === "speaking").length;
  return begun === count && document.body.dataset.state !== "speaking" && !document.querySelector("#turns [aria-busy]");
}

/** Runs in the page: what a person sees. */
function seen() {
  const texts = (selector) => [...document.querySelectorAll(selector)].map((element) => element.textContent);
  return { answers: texts(".answer"), times: texts(".time"), alert: texts("#alert")[0], states: window.states };
}

async function converse(page, url, folder, count) {
  await page.addInitScript(noteStates);
  await page.goto(url);
  await page.waitForLoadState("networkidle");
  await page.click("#call");
  await page.waitForFunction(() => document.querySelector("audio").srcObject);
  await page.evaluate(record, RATE);
  const recordings = [];
  for (let turn = 0; turn < count; turn += 1) {
    await page.waitForFunction(spoken, turn + 1, { timeout: ANSWERED_WITHIN_MS });
    await page.waitForTimeout(TAIL_MS);
    recordings.push(join(folder, `${turn}.wav`));
    await writeFile(recordings[turn], wave(RATE, Buffer.from(await page.evaluate(recording), "base64")));
  }
  const { answers, times, states, alert } = await page.evaluate(seen);
  await page.click("#call");
  await page.waitForFunction(() => document.body.dataset.state === "idle");
  const turns = answers.map((answer, turn) => ({ recording: recordings[turn], answer, firstSound: times[turn] }));
  return { turns, states, alert };
}

const [url, folder, ...questions] = process.argv.slice(2);
const microphone = join(folder, "microphone.wav");
await writeMicrophone(microphone, questions, LEAD_S, BETWEEN_S);
const result = await withPage(MICROPHONE.file(microphone), (page) => converse(page, url, folder, questions.length));
console.log(JSON.stringify(result));
