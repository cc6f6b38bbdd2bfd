// Checks server events with the parser of @openai/agents-realtime: an event that it cannot make sense of it takes for one of a kind
// unknown to it, and says nothing.
//
// Usage: node check_events.mjs FILE      one event as JSON a line
//
// Prints each complaint, and fails if there is one. Of each type of event a copy without its `event_id`, which only errors need
// not have, must be refused.

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

// The package does not export its parser.
const entry = fileURLToPath(import.meta.resolve("@openai/agents-realtime"));
const { parseRealtimeEvent, realtimeServerEventSchema } = await import(
  new URL("openaiRealtimeEvents.mjs", `file://${entry}`).href
);

/** Events of the protocol that the package has no schema for: it hands them on as they are. */
const UNKNOWN_TO_IT = new Set(["input_audio_buffer.dtmf_event_received", "input_audio_buffer.timeout_triggered"]);

/** @param {object} event */
const isRefused = (event) => parseRealtimeEvent({ data: JSON.stringify(event) }).isGeneric;

const [path = ""] = process.argv.slice(2);
const lines = (await readFile(path, "utf8")).trimEnd().split("\n");
const events = lines.map((line) => JSON.parse(line)).filter(({ type }) => !UNKNOWN_TO_IT.has(type));
const complaints = [];
for (const event of events.filter(isRefused)) {
  const why = realtimeServerEventSchema.safeParse(event).error?.message;
  complaints.push(`agents-realtime: ${why}: ${JSON.stringify(event).slice(0, 2000)}`);
}
const oneOfEach = new Map(events.map((event) => [event.type, event]));
for (const [type, { event_id, ...rest }] of oneOfEach) {
  if (type !== "error" && !isRefused(rest)) complaints.push(`agents-realtime does not miss \`event_id\` in ${type}`);
}
complaints.forEach((complaint) => console.log(complaint));
console.log(`${events.length} events of ${oneOfEach.size} types`);
process.exitCode = complaints.length || !events.length ? 1 : 0;
