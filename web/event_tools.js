// Tools of the event log: copies and saves it, sends an event as it is written, and copies programs that repeat a call.

import { save } from "./download.js";
import { javascript, python, repeatable } from "./snippets.js";
import { messageOf } from "./server.js";
import { $ } from "./view.js";

/** @import { EventLog } from "./event_log.js" */
/** @import { ClientEvent } from "./types/events.js" */

/**
 * Makes the buttons work.
 *
 * @param {EventLog} log
 * @param {(event: ClientEvent) => boolean} send sends an event; false without a call
 */
export function offerEventTools(log, send) {
  const url = `${location.origin.replace(/^http/, "ws")}/v1/realtime`;
  const lines = () => log.events.map((entry) => JSON.stringify(entry)).join("\n");
  const sent = () => {
    const events = log.events.filter(({ direction }) => direction === "sent").map(({ event }) => event);
    return repeatable(/** @type {ClientEvent[]} */ (events));
  };
  $("copy-events").addEventListener("click", () => copy(lines()));
  $("save-events").addEventListener("click", () => save(new Blob([`${lines()}\n`], { type: "application/jsonl" }), "jsonl"));
  $("copy-python").addEventListener("click", () => copy(python(sent(), url)));
  $("copy-js").addEventListener("click", () => copy(javascript(sent(), url)));
  $("raw").addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    try {
      const event = JSON.parse($("raw-event").value);
      if (typeof event?.type !== "string") return say("An event is an object with a type.");
      say(send(event) ? "Sent." : "There is no call: begin one, then send.");
    } catch (error) {
      say(`This is not JSON: ${messageOf(error)}`);
    }
  });
}

/** Copies a text; where the browser has no clipboard for pages, by a selection. @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    $("log").append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied.");
}

/** @param {string} text */
function say(text) {
  $("raw-problem").textContent = text;
}
