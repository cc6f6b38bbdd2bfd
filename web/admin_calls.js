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
    showLive(calls.filter(({ ended }) => ended === null));
    showEnded(calls.filter(({ ended }) => ended !== null));
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
function liveCells(call) {
  return [call.id, call.transport, call.key, call.address, ...figures(call)].map(String);
}

/** @param {ListedCall} call */
function liveRow(call) {
  const row = rowOf(liveCells(call));
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
  row.dataset.call = call.id;
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
 * Shows the live calls. A call keeps its row, so that its button does not vanish under a pointer or lose the focus.
 *
 * @param {ListedCall[]} calls
 */
function showLive(calls) {
  const body = $("live").tBodies[0];
  if (!body) return;
  const rows = new Map([...body.rows].map((row) => [row.dataset.call, row]));
  for (const [at, call] of calls.entries()) {
    const row = rows.get(call.id) ?? liveRow(call);
    rows.delete(call.id);
    for (const [column, text] of liveCells(call).entries()) {
      const cell = row.cells[column];
      if (cell && cell.textContent !== text) cell.textContent = text;
    }
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
  }
  for (const row of rows.values()) row.remove();
  hideEmpty("live", calls.length);
}

/** @param {ListedCall[]} calls */
function showEnded(calls) {
  $("history").tBodies[0]?.replaceChildren(...calls.map(endedRow));
  hideEmpty("history", calls.length);
}

/**
 * Shows a table or the text in its place.
 *
 * @param {"live" | "history"} name
 * @param {number} rows
 */
function hideEmpty(name, rows) {
  $(name).hidden = rows === 0;
  $(`no-${name}`).hidden = rows > 0;
}
