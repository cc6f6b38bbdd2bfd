// Goes through a scenario with the stock `@openai/agents-realtime` over the websocket.
//
// Usage: node npm_agents_realtime_websocket.mjs ADDRESS SCENARIO
//
// With its own defaults. It tells by the clock what was played, and truncates by itself.

import { RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { Scenario } from "./scenario.mjs";

const [address, path = ""] = process.argv.slice(2);
const scenario = new Scenario(path);
/** @import { ScenarioFunction } from "./scenario.mjs" */

/** @param {ScenarioFunction} given */
const offer = ({ name, description, parameters }) =>
  tool({ name, description, parameters, strict: false, execute: async (args) => scenario.call(args) });
const tools = scenario.function ? [offer(scenario.function)] : [];
const agent = new RealtimeAgent({ name: "Assistant", instructions: "Be brief.", tools });
const session = new RealtimeSession(agent, { transport: "websocket" });

session.on("audio", ({ data, responseId }) => scenario.answer(responseId).sounded(data));
session.on("audio_interrupted", () => scenario.last?.stopped());
session.on("error", ({ error }) => scenario.errors.push(JSON.stringify(error)));
session.transport.on("audio_transcript_delta", ({ delta, responseId }) => {
  scenario.answer(responseId).transcript += delta;
});
session.transport.on("turn_done", ({ response }) => scenario.made(response.id));

await session.connect({ apiKey: scenario.key, url: `ws://${address}/v1/realtime?model=gpt-realtime` });
await scenario.take((piece) => session.sendAudio(new Uint8Array(piece).buffer));
session.close();
scenario.report("@openai/agents-realtime");
