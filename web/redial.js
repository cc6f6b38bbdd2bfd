// Redial after the loss of a connection.

import { CallError } from "./server.js";

/** Longest time of redialling, with growing pauses. */
const REDIAL_FOR_MS = 30000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;

/**
 * Calls `dial` until it succeeds or `isOver()`. Rethrows its error if that is not retryable, and throws `problem` once the connection has
 * been lost for too long.
 *
 * @param {() => Promise<void>} dial
 * @param {CallError} problem
 * @param {number} lostAt time of the loss, on the clock of performance.now()
 * @param {() => boolean} isOver
 */
export async function redial(dial, problem, lostAt, isOver) {
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (isOver()) return;
    try {
      return await dial();
    } catch (error) {
      if (!(error instanceof CallError && error.retryable)) throw error;
      if (performance.now() - lostAt > REDIAL_FOR_MS) throw problem;
    }
  }
}
