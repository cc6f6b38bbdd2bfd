// Programs that repeat the sent events of a call over a websocket, in Python and JavaScript.

/** @import { ClientEvent } from "./types/events.js" */

/** Events that another session understands: they name no item, response or call of this one. */
const REPEATABLE = new Set(["session.update", "conversation.item.create", "response.create"]);

/** Returns the events that a program can repeat. @param {ClientEvent[]} events */
export function repeatable(events) {
  return events.filter((event) => REPEATABLE.has(event.type) && !("item" in event && event.item.type === "function_call_output"));
}

/**
 * Returns a Python program for the package `websockets`.
 *
 * @param {ClientEvent[]} events
 * @param {string} url of the websocket
 */
export function python(events, url) {
  const lines = events.map((event) => `    ${literal(event)},`).join("\n");
  return `# pip install websockets
import asyncio, json, os
import websockets

URL = ${JSON.stringify(url)}
EVENTS = [
${lines}
]


async def main():
    key = os.environ.get("REPARTEE_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with websockets.connect(URL, additional_headers=headers, max_size=None) as socket:
        for event in EVENTS:
            await socket.send(json.dumps(event))
            while event["type"] == "response.create":
                received = json.loads(await socket.recv())
                print(received["type"], received.get("transcript") or received.get("error") or "")
                if received["type"] in ("response.done", "error"):
                    break


asyncio.run(main())
`;
}

/**
 * Returns a JavaScript program for Node 22 or a browser.
 *
 * @param {ClientEvent[]} events
 * @param {string} url of the websocket
 */
export function javascript(events, url) {
  const lines = events.map((event) => `  ${JSON.stringify(event)},`).join("\n");
  return `// Node 22 or a browser. On a server with keys: ["realtime", "openai-insecure-api-key.KEY"].
const socket = new WebSocket(${JSON.stringify(url)}, ["realtime"]);
const events = [
${lines}
];

/** Sends the events up to the next request for a response. */
function next() {
  for (let event; (event = events.shift()); ) {
    socket.send(JSON.stringify(event));
    if (event.type === "response.create") return;
  }
  socket.close();
}

socket.onopen = next;
socket.onmessage = ({ data }) => {
  const event = JSON.parse(data);
  console.log(event.type, event.transcript ?? event.error ?? "");
  if (event.type === "response.done" || event.type === "error") next();
};
`;
}

/** Returns the value as a Python expression. @param {unknown} value @returns {string} */
function literal(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, field]) => `${JSON.stringify(key)}: ${literal(field)}`).join(", ")}}`;
  return JSON.stringify(value);
}
