// Goes through a scenario with the stock `@openai/agents-realtime` over WebRTC, in a headless Chromium.
//
// Usage: node npm_agents_realtime_webrtc.mjs ADDRESS SCENARIO
//
// The page is one that a developer would write with the package's bundle, but for its microphone, which plays what it is given, and
// for a tap on what its <audio> element plays. It lives on an origin of its own and calls with an ephemeral key, which this script
// has asked for with the stock `openai` client; by the same client the call is hung up in the end. The server's playout clock says
// what was played.

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { MICROPHONE, record, recording, withPage } from "../../browser/browser.mjs";
import { Scenario } from "./scenario.mjs";

/** @import { AddressInfo } from "node:net" */
/** @import { Page } from "../../browser/browser.mjs" */

const BUNDLE = fileURLToPath(
  new URL("node_modules/@openai/agents-realtime/dist/bundle/openai-realtime-agents.umd.js", import.meta.url),
);
/** Delay of the network's buffers after the server's last packet. */
const TAIL_MS = 500;
const PAGE = `<!doctype html><title>agents</title><button>Talk</button><audio></audio><script src="/agents.js"></script>`;

/**
 * Runs in the page: calls, and reports events over `window.happened`.
 *
 * @param {{ url: string, apiKey: string, rate: number }} options
 */
async function call({ url, apiKey, rate }) {
  const { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession } = window.OpenAIAgentsRealtime;
  const context = new AudioContext({ sampleRate: rate });
  const microphone = context.createMediaStreamDestination();
  let free = 0;
  window.say = (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const sound = Float32Array.from(new Int16Array(bytes.buffer), (sample) => sample / 32768);
    const buffer = context.createBuffer(1, sound.length, rate);
    buffer.copyToChannel(sound, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(microphone);
    free = Math.max(free, context.currentTime + 0.05);
    source.start(free);
    free += buffer.duration;
  };
  const audioElement = document.querySelector("audio");
  const options = { mediaStream: microphone.stream, audioElement };
  const agent = new RealtimeAgent({ name: "Assistant", instructions: "Be brief." });
  const transport = new OpenAIRealtimeWebRTC(options);
  window.session = new RealtimeSession(agent, { transport });
  // What was kept of the sound before the first answer, and with each. Cut here, because a message to the script takes its time.
  window.parts = [];
  window.session.on("transport_event", (event) => {
    if (event.type === "response.created") window.parts.push(window.recorded.splice(0));
    window.happened("event", event);
  });
  window.session.on("error", ({ error }) => window.happened("error", JSON.stringify(error)));
  transport.on("audio_transcript_delta", (piece) => window.happened("transcript", piece));
  transport.on("turn_done", ({ response }) => window.happened("done", response.id));
  await window.session.connect({ apiKey, url });
  return transport.callId ?? "";
}

/**
 * @param {Page} page
 * @param {string} origin
 * @param {string} address
 * @param {Scenario} scenario
 */
async function talk(page, origin, address, scenario) {
  /** @type {Record<string, (event: { response: { id: string }, response_id: string }) => void>} */
  const events = {
    "response.created": ({ response }) => {
      scenario.answer(response.id).ended = false;
    },
    "output_audio_buffer.started": ({ response_id }) => {
      scenario.answer(response_id).began = performance.now();
    },
    "output_audio_buffer.stopped": ({ response_id }) => {
      scenario.answer(response_id).ended = true;
    },
    "output_audio_buffer.cleared": ({ response_id }) => scenario.answer(response_id).stopped(),
  };
  await page.exposeFunction("happened", (/** @type {string} */ kind, /** @type {any} JSON */ what) => {
    if (kind === "error") scenario.errors.push(what);
    if (kind === "transcript") scenario.answer(what.responseId).transcript += what.delta;
    if (kind === "done") scenario.answer(what).made = true;
    if (kind === "event") {
      scenario.events.push(what);
      events[what.type]?.(what);
    }
  });
  await page.goto(origin);
  await page.click("button");
  const client = new OpenAI({ baseURL: `http://${address}/v1`, apiKey: scenario.key });
  const { value: apiKey } = await client.realtime.clientSecrets.create({ session: { type: "realtime" } });
  const url = `http://${address}/v1/realtime/calls`;
  const callId = await page.evaluate(call, { url, apiKey, rate: scenario.rate });
  await page.waitForFunction(() => document.querySelector("audio").srcObject);
  await page.evaluate(record);
  await scenario.take((piece) => page.evaluate((text) => window.say(text), piece.toString("base64")));
  await sleep(TAIL_MS);
  await page.evaluate(() => window.parts.push(window.recorded.splice(0)));
  for (const answer of scenario.answers) {
    await page.evaluate(() => {
      window.parts.shift();
      window.recorded = [...window.parts[0]];
    });
    answer.sound.push(Buffer.from(await page.evaluate(recording, scenario.rate), "base64"));
  }
  await client.realtime.calls.hangup(callId);
  await page.waitForFunction(() => window.session.transport.status === "disconnected");
}

const [address, path] = process.argv.slice(2);
const scenario = new Scenario(path);
const bundle = readFileSync(BUNDLE);
const site = createServer(({ url }, answer) => {
  const [kind, body] = url === "/agents.js" ? ["text/javascript", bundle] : ["text/html", PAGE];
  answer.writeHead(200, { "Content-Type": kind }).end(body);
});
await once(site.listen(0, "127.0.0.1"), "listening");
const { port } = /** @type {AddressInfo} */ (site.address());
const origin = `http://localhost:${port}/`;
try {
  await withPage(MICROPHONE.denied, (page) => talk(page, origin, address, scenario));
} finally {
  site.close();
  site.closeAllConnections();
}
scenario.report("@openai/agents-realtime");
