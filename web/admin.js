// The admin page: figures of /metrics, now and over the last minutes, for people without Grafana.

import { CallTables, duration } from "./admin_calls.js";
import { showNodes } from "./admin_nodes.js";
import { drawChart } from "./chart.js";
import { remember } from "./key.js";
import { Reading, increase, mean, quantile } from "./metrics.js";
import { messageOf, modelCard, refusal, request } from "./server.js";
import { Settings } from "./settings.js";
import { followTheme } from "./theme.js";
import { $, alertText } from "./view.js";
import { showWaterfall } from "./waterfall.js";

/** @import { PageElements } from "./types/elements.js" */

const EVERY_MS = 2000;
/** Time window of the figures. */
const WINDOW_MS = 5 * 60_000;
/** Time window of one point of a line: enough turns for a quantile. */
const POINT_MS = 30_000;

/** Stages of a response: name in /metrics, label. @type {[string, string][]} */
const STAGES = [
  ["endpointing", "Endpointing"],
  ["slice_wait", "Last slice taken"],
  ["encoder", "Last slice encoded"],
  ["prefill", "Prefill of the rest"],
  ["first_token", "First text token"],
  ["first_frame", "First codec frame"],
  ["codec", "Samples of that frame"],
  ["playout", "First audible 20 ms due"],
  ["opus", "Opus packet"],
  ["wire", "Packet sent"],
];

/** Readings of the window, the oldest first. @type {Reading[]} */
const readings = [];
const calls = new CallTables();
let timer = 0;
/** Name of the served model. */
let model = "";

async function read() {
  clearTimeout(timer);
  try {
    const reply = await request("/metrics");
    $("key-form").hidden = reply.status !== 401;
    if (reply.status === 401) return alertText("These figures need the server's key.");
    if (reply.status === 503) throw await refusal(reply);
    if (!reply.ok) throw new Error(`The server refused (status ${reply.status}).`);
    alertText("");
    const now = new Reading(await reply.text(), Date.now());
    readings.push(now);
    readings.splice(0, readings.findIndex(({ at }) => now.at - at <= WINDOW_MS));
    show(now);
    await calls.read();
    if (now.all("repartee_cluster_nodes").length > 0) await showNodes();
  } catch (error) {
    alertText(messageOf(error));
  }
  again();
}

/** Schedules the next reading, instead of one that an earlier call of `read` has scheduled. */
function again() {
  clearTimeout(timer);
  timer = setTimeout(read, EVERY_MS);
}

/**
 * Returns the newest reading that is at least `ms` older than this one, or the first one.
 *
 * @param {Reading} reading
 * @param {number} ms
 */
function before(reading, ms) {
  return readings.findLast(({ at }) => at <= reading.at - ms) ?? readings[0] ?? reading;
}

/** Shows the figures. @param {Reading} now the newest reading */
function show(now) {
  const first = readings[0] ?? now;
  /** @param {number | null} seconds */
  const ms = (seconds) => (seconds === null ? "–" : `${Math.round(seconds * 1000)} ms`);
  /** @param {number} share */
  const ttfp = (share) => ms(quantile(first, now, "repartee_ttfp_seconds", share));
  showServer(now);
  figure("calls", `${now.sum("repartee_active_sessions")} of ${now.sum("repartee_session_slots")}`);
  figure("ttfp-50", ttfp(0.5));
  figure("ttfp-95", ttfp(0.95));
  figure("responses", increase(first, now, "repartee_turns_total"));
  figure("underruns", increase(first, now, "repartee_underruns_total"));
  figure("refused", increase(first, now, "repartee_refused_total"));
  figure("round-trip", ms(quantile(first, now, "repartee_round_trip_seconds", 0.5)));
  const loss = mean(first, now, "repartee_rtp_loss_ratio");
  figure("loss", loss === null ? "–" : `${(100 * loss).toFixed(1)} %`);
  const rtf = quantile(first, now, "repartee_rtf_ratio", 0.95);
  figure("rtf", rtf === null ? "–" : rtf.toFixed(2));
  figure("barge-in", ms(quantile(first, now, "repartee_barge_in_seconds", 0.5)));
  const seconds = (now.at - first.at) / 1000;
  figure("engine-cores", seconds > 0 ? `${(increase(first, now, "repartee_engine_busy_seconds_total") / seconds).toFixed(2)} cores` : "–");
  figure("memory", `${Math.round(now.sum("process_resident_memory_bytes") / 2 ** 20)} MiB`);
  showStages(first, now);
  showCounts($("call-ends"), first, now, "repartee_call_seconds_count", "end");
  showCounts($("refusals"), first, now, "repartee_refused_total", "reason");
  showCounts($("ended"), first, now, "repartee_turns_total", "status");
  showCounts($("errors"), first, now, "repartee_errors_total", "code");
  /** @param {(reading: Reading) => number | null} value */
  const points = (value) => readings.map((reading) => ({ at: reading.at, value: value(reading) }));
  /** @param {number} share */
  const line = (share) => points((reading) => {
    const seconds = quantile(before(reading, POINT_MS), reading, "repartee_ttfp_seconds", share);
    return seconds === null ? null : seconds * 1000;
  });
  const from = now.at - WINDOW_MS;
  drawChart($("chart-calls"), [{ colour: "--accent", points: points((reading) => reading.sum("repartee_active_sessions")) }], from, now.at);
  drawChart($("chart-ttfp"), [{ colour: "--you", points: line(0.95) }, { colour: "--accent", points: line(0.5) }], from, now.at, " ms");
}

/** Shows version, model and uptime. @param {Reading} now */
function showServer(now) {
  const [build] = now.all("repartee_build_info");
  const begun = now.sum("process_start_time_seconds");
  const parts = [`Repartee ${build?.labels.version ?? ""}`, model];
  if (begun) parts.push(`up ${duration(now.at / 1000 - begun)}`);
  $("server").textContent = parts.filter(Boolean).join(" · ");
}

/**
 * @param {keyof PageElements} id
 * @param {string | number} value
 */
function figure(id, value) {
  $(id).textContent = String(value);
}

/**
 * Shows the mean of each stage, one after another.
 *
 * @param {Reading} first
 * @param {Reading} now
 */
function showStages(first, now) {
  let from = 0;
  const stages = STAGES.flatMap(([stage, name]) => {
    const seconds = mean(first, now, "repartee_stage_seconds", { stage });
    if (seconds === null) return [];
    const to = from + seconds * 1000;
    const shown = { name, from: Math.round(from), to: Math.round(to) };
    from = to;
    return [shown];
  });
  $("no-stages").hidden = stages.length > 0;
  showWaterfall($("stages"), stages);
}

/**
 * Shows the count of each value of a label.
 *
 * @param {HTMLElement} list
 * @param {Reading} first
 * @param {Reading} now
 * @param {string} name of the counter
 * @param {string} label
 */
function showCounts(list, first, now, name, label) {
  const values = [...new Set(now.all(name).map(({ labels }) => labels[label] ?? ""))];
  const counts = values.map((value) => ({ value, count: increase(first, now, name, { [label]: value }) }));
  const items = counts.filter(({ count }) => count > 0).map(({ value, count }) => {
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("span"), { textContent: value }), ` ${count}`);
    return item;
  });
  if (items.length === 0) items.push(Object.assign(document.createElement("li"), { textContent: "none" }));
  list.replaceChildren(...items);
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  remember($("key").value.trim());
  read();
});
followTheme(new Settings());
modelCard().then(({ name = "" }) => {
  model = name;
});
read();
