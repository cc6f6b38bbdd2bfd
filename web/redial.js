// Calling again after a connection was lost.

/** A lost connection is called again for so long, with growing pauses. */
const REDIAL_FOR_MS = 30000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;

/**
 * Calls `dial` until it succeeds or `isOver()`. Throws what it throws if that is not retryable, and `problem` once the connection has
 * been lost for too long.
 *
 * @param {number} lostAt when the connection was lost, on the clock of performance.now()
 */
export async function redial(dial, problem, lostAt, isOver) {
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (isOver()) return;
    try {
      return await dial();
    } catch (error) {
      if (!error.retryable) throw error;
      if (performance.now() - lostAt > REDIAL_FOR_MS) throw problem;
    }
  }
}
