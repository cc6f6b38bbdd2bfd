// Goes through a scenario in a real Firefox, with the browser's own RTCPeerConnection.
//
// Usage: node firefox_webrtc.mjs ADDRESS SCENARIO
//
// Firefox has its usual settings, so it offers the address of an interface and none of loopback. The page's microphone plays what it
// is given, and what its receiver gets is recorded by an AudioWorklet. This script posts the offer; the server's playout clock says
// what was played.

import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { withFirefox } from "../../browser/firefox.mjs";
import { Scenario } from "./scenario.mjs";

/** @import { AddressInfo } from "node:net" */
/** @import { FirefoxPage } from "../../browser/firefox.mjs" */

/** Delay of the network's buffers after the server's last packet. */
const TAIL_MS = 500;
/** Pause between two looks at the page's events. */
const POLL_MS = 50;
const RECORDER = `registerProcessor("recorder", class extends AudioWorkletProcessor {
  process([input]) {
    if (input[0]) this.port.postMessage(input[0].slice());
    return true;
  }
});`;

/** Runs in the page: makes the call's offer. @param {number} rate */
async function offer(rate) {
  const context = new AudioContext({ sampleRate: rate });
  await context.resume();
  await context.audioWorklet.addModule("/recorder.js");
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
  window.happenings = [];
  // What was heard before the first answer, and with each.
  window.heard = [[]];
  const pc = (window.connection = new RTCPeerConnection());
  pc.addTrack(microphone.stream.getAudioTracks()[0], microphone.stream);
  pc.addEventListener("track", ({ track }) => {
    const source = context.createMediaStreamSource(new MediaStream([track]));
    const recorder = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 0 });
    recorder.port.onmessage = ({ data }) => window.heard.at(-1)?.push(data);
    source.connect(recorder);
  });
  const channel = pc.createDataChannel("oai-events");
  channel.addEventListener("open", () => {
    channel.send(JSON.stringify({ type: "session.update", session: { type: "realtime", instructions: "Be brief." } }));
  });
  channel.addEventListener("message", ({ data }) => {
    const event = JSON.parse(data);
    if (event.type === "response.created") window.heard.push([]);
    window.happenings.push(event);
  });
  await pc.setLocalDescription();
  return pc.localDescription?.sdp ?? "";
}

/** Runs in the page: connects. @param {string} sdp */
async function accept(sdp) {
  await window.connection.setRemoteDescription({ type: "answer", sdp });
  for (let waited = 0; window.connection.connectionState !== "connected"; waited += 50) {
    if (waited > 20_000) throw new Error(`not connected: ${window.connection.iceConnectionState}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** Runs in the page: returns the sound of each answer, as base64 of 16 bit little endian. */
function sounds() {
  return window.heard.slice(1).map((pieces) => {
    let text = "";
    for (const piece of pieces) {
      const samples = Int16Array.from(piece, (sample) => Math.max(-1, Math.min(1, sample)) * 32767);
      text += String.fromCharCode(...new Uint8Array(samples.buffer));
    }
    return btoa(text);
  });
}

/** @param {Scenario} scenario @param {any} event */
function happened(scenario, event) {
  scenario.events.push(event);
  switch (event.type) {
    case "error":
      scenario.errors.push(event.error.message);
      break;
    case "response.created":
      scenario.answer(event.response.id).ended = false;
      break;
    case "response.output_audio_transcript.delta":
      scenario.answer(event.response_id).transcript += event.delta;
      break;
    case "response.done":
      scenario.answer(event.response.id).made = true;
      break;
    case "output_audio_buffer.started":
      scenario.answer(event.response_id).began = performance.now();
      break;
    case "output_audio_buffer.stopped":
      scenario.answer(event.response_id).ended = true;
      break;
    case "output_audio_buffer.cleared":
      scenario.answer(event.response_id).stopped();
      break;
  }
}

/**
 * @param {FirefoxPage} page
 * @param {string} origin
 * @param {string} address
 * @param {Scenario} scenario
 */
async function talk(page, origin, address, scenario) {
  await page.goto(origin);
  const body = await page.evaluate(offer, scenario.rate);
  const authorization = `Bearer ${scenario.key}`;
  const headers = { "Content-Type": "application/sdp", Authorization: authorization };
  const answer = await fetch(`http://${address}/v1/realtime/calls`, { method: "POST", headers, body });
  if (answer.status !== 201) throw new Error(`${answer.status}: ${await answer.text()}`);
  await page.evaluate(accept, await answer.text());
  const end = new AbortController();
  const watch = async () => {
    while (!end.signal.aborted) {
      for (const event of await page.evaluate(() => window.happenings.splice(0))) happened(scenario, event);
      await sleep(POLL_MS);
    }
  };
  const watcher = watch();
  await Promise.race([watcher, scenario.take((piece) => page.evaluate((text) => window.say(text), piece.toString("base64")))]);
  await sleep(TAIL_MS);
  end.abort();
  await watcher;
  for (const [index, sound] of (await page.evaluate(sounds)).entries()) {
    scenario.answers[index]?.sound.push(Buffer.from(sound, "base64"));
  }
  await page.evaluate(() => window.connection.close());
}

const [address, path] = process.argv.slice(2);
const scenario = new Scenario(path);
const site = createServer(({ url }, answer) => {
  const [kind, body] = url === "/recorder.js" ? ["text/javascript", RECORDER] : ["text/html", "<!doctype html><title>call</title>"];
  answer.writeHead(200, { "Content-Type": kind }).end(body);
});
await once(site.listen(0, "127.0.0.1"), "listening");
const { port } = /** @type {AddressInfo} */ (site.address());
let client = "Firefox";
try {
  await withFirefox(async (page, version) => {
    client = `Firefox ${version}`;
    await talk(page, `http://localhost:${port}/`, address, scenario);
  });
} finally {
  site.close();
  site.closeAllConnections();
}
scenario.reportAs(client);
