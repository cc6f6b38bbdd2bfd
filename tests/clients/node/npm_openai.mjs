// Goes through a scenario with the stock `openai` client over the websocket, which it opens over TLS only.
//
// Usage: node npm_openai.mjs ADDRESS SCENARIO
//
// The client plays nothing itself, so this does what its documentation asks of a caller: when the server hears speech, stop playing
// and truncate the item at what was heard.

import { readFileSync } from "node:fs";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { Scenario } from "./scenario.mjs";

const [address, path = ""] = process.argv.slice(2);
const scenario = new Scenario(path);
const client = new OpenAI({ baseURL: `https://${address}/v1`, apiKey: scenario.key });
const options = { ca: readFileSync(scenario.certificate ?? "") };
const socket = new OpenAIRealtimeWS({ model: "gpt-realtime", options }, client);

/** Items of answers that may not have been heard to their end. */
const unheard = new Map();

socket.on("event", (event) => scenario.events.push(event));
socket.on("error", (error) => scenario.errors.push(error.message));
socket.on("response.output_item.added", ({ response_id, item }) => unheard.set(scenario.answer(response_id), item.id));
socket.on("response.output_audio_transcript.delta", ({ response_id, delta }) => {
  scenario.answer(response_id).transcript += delta;
});
socket.on("response.output_audio.delta", ({ response_id, delta }) => {
  scenario.answer(response_id).sounded(Buffer.from(delta, "base64"));
});
socket.on("response.done", ({ response }) => {
  scenario.answer(response.id ?? "").made = true;
});
socket.on("input_audio_buffer.speech_started", () => {
  for (const [answer, item_id] of unheard) {
    const audio_end_ms = Math.floor(answer.playedMs);
    answer.stopped();
    if (answer.interrupted) socket.send({ type: "conversation.item.truncate", item_id, content_index: 0, audio_end_ms });
  }
  unheard.clear();
});

const updated = new Promise((resolve) => socket.on("session.updated", resolve));
await new Promise((resolve, reject) => {
  socket.socket.on("open", resolve);
  socket.socket.on("error", reject);
});
socket.send({
  type: "session.update",
  session: {
    type: "realtime",
    instructions: "Be brief.",
    audio: { input: { turn_detection: { type: "server_vad" } }, output: { voice: "marin" } },
  },
});
await updated;
await scenario.take((piece) => socket.send({ type: "input_audio_buffer.append", audio: piece.toString("base64") }));
socket.close();
scenario.report("openai");
