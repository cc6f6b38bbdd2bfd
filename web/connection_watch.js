// Watch over a call's connection: notices sooner than the browser that nothing arrives any more. The server's reports come each second,
// also while nobody speaks.

/** @import { NetworkStats } from "./network.js" */

const EVERY_MS = 500;
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
