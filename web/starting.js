// Progress of a server that loads its model.

import { $ } from "./view.js";

const EVERY_MS = 500;

/** @type {Record<string, string>} */
const STAGES = { opening: "Opening the model…", weights: "Loading the model…", warm_up: "Warming up…", voices: "Enrolling the voices…" };

/** Shows the progress of the server's start; resolves when it ends. */
export async function started() {
  let shown = false;
  for (;;) {
    const reply = await fetch("readyz", { cache: "no-store" }).catch(() => null);
    const { status, stage, fraction } = reply?.status === 503 ? await reply.json().catch(() => ({})) : {};
    // After a failed start the supervisor may start the server again.
    if (status !== "starting" && (reply || !shown)) break;
    shown = true;
    if (stage) show(stage, fraction);
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
  $("starting").hidden = true;
  $("call").disabled = false;
}

/**
 * @param {string} stage
 * @param {number} fraction
 */
function show(stage, fraction) {
  $("starting-stage").textContent = STAGES[stage] ?? "Starting…";
  $("starting-bar").value = fraction;
  $("starting").hidden = false;
  $("call").disabled = true;
}
