// Speaks questions to the demo page and records what it answers, each in a call of its own.
//
// Usage: node conversation.mjs URL FOLDER QUESTION.wav...
//
// For each question a real Chromium opens the page, its fake microphone plays the file once, the button is clicked, and
// what the page's own <audio> element plays is recorded to FOLDER/N.wav. Prints one JSON array of
// {question, recording, answer, firstSound, states, turns}.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { MICROPHONE, wave, withPage, writeMicrophone } from "./browser.mjs";

const RATE = 16000;
/** The call must stand before the question begins; a busy machine takes its time to start a browser. */
const LEAD_S = 4;
/** From the click to the end of the answer. */
const ANSWERED_WITHIN_MS = 90_000;

/** Runs in the page: keeps what the <audio> element plays from now on, as 16 bit samples. */
async function record(rate) {
  const worklet = `registerProcessor("tap", class extends AudioWorkletProcessor {
    process([input]) {
      if (input.length) this.port.postMessage(input[0].slice());
      return true;
    }
  })`;
  const context = new AudioContext({ sampleRate: rate });
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([worklet], { type: "text/javascript" })));
  const tap = new AudioWorkletNode(context, "tap", { channelCount: 1, channelCountMode: "explicit" });
  window.recorded = [];
  tap.port.onmessage = ({ data }) => window.recorded.push(data);
  context.createMediaStreamSource(document.querySelector("audio").captureStream()).connect(tap);
}

/** Runs in the page: what was kept, as base64 of 16 bit little endian. */
function recording() {
  const samples = window.recorded.flatMap((block) => Array.from(block, (x) => Math.max(-1, Math.min(1, x)) * 32767));
  const bytes = new Uint8Array(Int16Array.from(samples).buffer);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

/** Runs in the page before its own scripts: notes every state that the page shows. */
function noteStates() {
  window.states = [];
  addEventListener("DOMContentLoaded", () => {
    const note = () => window.states.push(document.body.dataset.state);
    new MutationObserver(note).observe(document.body, { attributes: true, attributeFilter: ["data-state"] });
  });
}

async function ask(page, url, file) {
  await page.addInitScript(noteStates);
  await page.goto(url);
  await page.click("#call");
  await page.waitForFunction(() => document.querySelector("audio").srcObject);
  await page.evaluate(record, RATE);
  await page.waitForFunction(() => window.states.includes("speaking") || !document.querySelector("#alert").hidden, null, {
    timeout: ANSWERED_WITHIN_MS,
  });
  await page.waitForFunction(
    () => document.body.dataset.state !== "speaking" && !document.querySelector("#turns [aria-busy]"),
    null,
    { timeout: ANSWERED_WITHIN_MS },
  );
  // What the network buffers still hold when the server has played its last packet.
  await page.waitForTimeout(500);
  await writeFile(file, wave(RATE, Buffer.from(await page.evaluate(recording), "base64")));
  const seen = await page.evaluate(() => ({
    answer: [...document.querySelectorAll(".answer")].map((element) => element.textContent).join(" "),
    turns: document.querySelectorAll("#turns li").length,
    firstSound: document.querySelector("#ttfp").textContent,
    alert: document.querySelector("#alert").textContent,
    states: window.states,
  }));
  await page.click("#call");
  await page.waitForFunction(() => document.body.dataset.state === "idle");
  return seen;
}

const [url, folder, ...questions] = process.argv.slice(2);
const results = [];
for (const [index, question] of questions.entries()) {
  const recording = join(folder, `${index}.wav`);
  const spoken = join(folder, `${index}.microphone.wav`);
  await writeMicrophone(spoken, question, LEAD_S);
  const seen = await withPage(MICROPHONE.file(spoken), (page) => ask(page, url, recording));
  results.push({ question, recording, ...seen });
}
console.log(JSON.stringify(results));
