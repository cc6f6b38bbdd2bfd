// Watch over a call's connection: notices sooner than the browser that nothing arrives any more. The server's reports come each second,
// also while nobody speaks.

/** @import { NetworkStats } from "./network.js" */

/** Longest interruption of a connection before the call counts as lost. */
export const LOST_AFTER_MS = 4000;
const EVERY_MS = 500;
const ASK_EVERY_MS = 1000;
const ANSWER_WITHIN_MS = 2000;
/** Types of the reports that count bytes of the network; no browser lacks both. */
const COUNTED = new Set(["transport", "candidate-pair"]);
/** Silence of the network after which the connection counts as interrupted. */
const INTERRUPTED_AFTER_MS = 2500;

export class ConnectionWatch {
  #timer;
  #bytes = 0;
  #arrivedAt = performance.now();
  #interrupted = false;

  /**
   * @param {() => Promise<Map<string, NetworkStats> | RTCStatsReport>} stats returns the browser's reports
   * @param {(interrupted: boolean) => void} tell called when the connection is interrupted, and when it is back
   */
  constructor(stats, tell) {
    this.#timer = setInterval(async () => {
      const reports = await stats().catch(() => null);
      if (reports) this.#read([...reports.values()], tell);
    }, EVERY_MS);
  }

  stop() {
    clearInterval(this.#timer);
  }

  /**
   * @param {NetworkStats[]} reports
   * @param {(interrupted: boolean) => void} tell
   */
  #read(reports, tell) {
    const bytes = reports.reduce((sum, { type, bytesReceived }) => sum + (COUNTED.has(type) ? (bytesReceived ?? 0) : 0), 0);
    const now = performance.now();
    if (bytes !== this.#bytes) [this.#bytes, this.#arrivedAt] = [bytes, now];
    const interrupted = bytes > 0 && now - this.#arrivedAt > INTERRUPTED_AFTER_MS;
    if (interrupted === this.#interrupted) return;
    this.#interrupted = interrupted;
    tell(interrupted);
  }
}

/** Watch over the server of a websocket, of which a browser tells nothing: asks for a sign of life each second. */
export class ServerWatch {
  #timer;
  #asks = false;
  #over = false;

  /** @param {(interrupted: boolean) => void} tell called with every answer, and when none comes in time */
  constructor(tell) {
    this.#timer = setInterval(async () => {
      if (this.#asks) return;
      this.#asks = true;
      const alive = await answers();
      this.#asks = false;
      if (!this.#over) tell(!alive);
    }, ASK_EVERY_MS);
  }

  stop() {
    this.#over = true;
    clearInterval(this.#timer);
  }
}

/** True if the server answers in time, whatever it answers. */
async function answers() {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), ANSWER_WITHIN_MS);
  try {
    await fetch("healthz", { cache: "no-store", signal: limit.signal });
    return true;
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
  }
}
