// Round trip and loss of the call, as the browser reports them.

const EVERY_MS = 2000;

/** @import { Conversation } from "./conversation.js" */

/**
 * The used fields of the browser's reports, which of them depends on `type`.
 *
 * @typedef {object} NetworkStats
 * @property {string} type
 * @property {boolean} [nominated]
 * @property {number} [currentRoundTripTime] in seconds
 * @property {number} [roundTripTime] in seconds
 * @property {number} [packetsReceived]
 * @property {number} [packetsLost]
 * @property {number} [bytesReceived]
 */

/** Shows the round trip and loss of the current conversation. */
export class NetworkReport {
  #output;
  #timer = 0;

  /** @param {HTMLElement} output */
  constructor(output) {
    this.#output = output;
  }

  /** Sets the conversation to show; null for none. @param {Conversation | null} conversation */
  follow(conversation) {
    clearInterval(this.#timer);
    this.#output.textContent = "–";
    if (!conversation) return;
    this.#timer = setInterval(async () => {
      const reports = await conversation.stats()?.catch(() => null);
      if (reports) this.#output.textContent = words([...reports.values()]);
    }, EVERY_MS);
  }
}

/** @param {NetworkStats[]} reports */
function words(reports) {
  /** @param {string} type */
  const find = (type) => reports.find((report) => report.type === type);
  const pair = reports.find((report) => report.type === "candidate-pair" && report.nominated);
  const [received, remote] = [find("inbound-rtp"), find("remote-inbound-rtp")];
  const roundTripS = pair?.currentRoundTripTime ?? remote?.roundTripTime;
  if (roundTripS === undefined) return reports.length ? "–" : "over a websocket";
  const roundTrip = `${Math.round(roundTripS * 1000)} ms`;
  const lost = received?.packetsLost ?? 0;
  const packets = (received?.packetsReceived ?? 0) + lost;
  if (!packets) return roundTrip;
  return `${roundTrip}, ${((100 * Math.max(0, lost)) / packets).toFixed(1)} % lost`;
}
