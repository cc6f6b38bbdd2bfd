// Keeps the screen on during a call: a sleeping phone stops the microphone.

export class WakeLock {
  #wanted = false;
  /** @type {WakeLockSentinel | null} */
  #lock = null;

  constructor() {
    // The browser releases the lock whenever the page is hidden.
    document.addEventListener("visibilitychange", () => this.#ask());
  }

  hold() {
    this.#wanted = true;
    this.#ask();
  }

  release() {
    this.#wanted = false;
    this.#lock?.release();
    this.#lock = null;
  }

  async #ask() {
    if (!this.#wanted || document.visibilityState !== "visible") return;
    // Refused on a low battery, for instance; the call continues without it.
    const lock = await navigator.wakeLock?.request("screen").catch(() => null);
    if (this.#wanted) this.#lock = lock ?? null;
    else lock?.release();
  }
}
