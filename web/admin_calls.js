// Tables of the admin page: the live calls, each with a button that hangs it up, and the calls that ended.

import { request } from "./server.js";
import { $ } from "./view.js";

const CALLS = "/v1/realtime/calls";

/**
 * A call as the server lists it.
 *
 * @typedef {object} ListedCall
 * @property {string} id
 * @property {string} transport
 * @property {string} key name of its key
 * @property {string} address
 * @property {number} created_at in seconds since 1970
 * @property {number} seconds
 * @property {number} answers
 * @property {number} cancelled
 * @property {number} errors
 * @property {number | null} first_sound_p95_ms
 * @property {string | null} ended reason; null while it runs
 */

export class CallTables {
  /** Reads the calls and shows them. Keeps the old ones if the server does not tell. */
  async read() {
    const reply = await request(CALLS);
    if (!reply.ok) return;
    /** @type {ListedCall[]} */
    const calls = (await reply.json()).data ?? [];
    fill("live", calls.filter(({ ended }) => ended === null).map((call) => liveRow(call)));
    fill("history", calls.filter(({ ended }) => ended !== null).map(endedRow));
  }
}

/** Returns a duration in words. @param {number} seconds */
export function duration(seconds) {
  const [whole, minutes, hours] = [Math.max(0, Math.round(seconds)), Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  if (hours >= 48) return `${Math.floor(hours / 24)} days`;
  if (hours >= 1) return `${hours} h ${minutes % 60} min`;
  return minutes >= 1 ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

/** @param {ListedCall} call */
function figures({ seconds, answers, cancelled, errors, first_sound_p95_ms: p95 }) {
  return [duration(seconds), answers, cancelled, errors, p95 === null ? "–" : `${p95} ms`];
}

/** @param {ListedCall} call */
function liveRow(call) {
  const row = rowOf([call.id, call.transport, call.key, call.address, ...figures(call)]);
  const button = Object.assign(document.createElement("button"), { type: "button", className: "plain", textContent: "Hang up" });
  button.setAttribute("aria-label", `Hang up ${call.id}`);
  button.addEventListener("click", async () => {
    button.disabled = true;
    const reply = await request(`${CALLS}/${call.id}/hangup`, { method: "POST" }).catch(() => null);
    button.textContent = reply?.ok ? "Hung up" : "Refused";
  });
  const cell = document.createElement("td");
  cell.append(button);
  row.append(cell);
  return row;
}

/** @param {ListedCall} call */
function endedRow(call) {
  const begun = new Date(call.created_at * 1000).toLocaleTimeString();
  return rowOf([call.id, call.transport, call.key, call.address, begun, ...figures(call), call.ended ?? ""]);
}

/** @param {(string | number)[]} cells */
function rowOf(cells) {
  const row = document.createElement("tr");
  row.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: String(text) })));
  return row;
}

/**
 * Replaces the rows, unless a button among them has the focus.
 *
 * @param {"live" | "history"} name
 * @param {HTMLTableRowElement[]} rows
 */
function fill(name, rows) {
  const table = $(name);
  if (table.tBodies[0]?.contains(document.activeElement) && rows.length > 0) return;
  table.tBodies[0]?.replaceChildren(...rows);
  table.hidden = rows.length === 0;
  $(`no-${name}`).hidden = rows.length > 0;
}
