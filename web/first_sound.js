// Wait for the first sound of an answer, on the clock of performance.now().

export class FirstSoundWait {
  /** Begin of the wait; null for none. @type {number | null} */
  #since = null;
  /** Time from which a sound belongs to this answer; null while an earlier answer may still sound. @type {number | null} */
  #soundAfter = null;

  /** Begins to wait. @param {boolean} overlaps true if an earlier answer plays: then the server's next playback is waited for */
  begin(overlaps) {
    const now = performance.now();
    [this.#since, this.#soundAfter] = [now, overlaps ? null : now];
  }

  /** Handles the begin of a playback. */
  started() {
    if (this.#since !== null) this.#soundAfter ??= performance.now();
  }

  end() {
    [this.#since, this.#soundAfter] = [null, null];
  }

  /** Time after which a sound ends the wait; null for none. */
  get soundAfter() {
    return this.#soundAfter;
  }

  /** Ends the wait by a sound; returns its duration in ms, null if there was none. @param {number} at */
  heard(at) {
    const since = this.#since;
    this.end();
    return since === null ? null : Math.round(at - since);
  }
}
