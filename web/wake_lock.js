// Keeps the screen on during a call: a phone that sleeps takes the microphone away.

export class WakeLock {
  #wanted = false;
  #lock = null;

  constructor() {
    // The lock is lost whenever the page is not seen.
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
    // Refused on a low battery, for instance; a call goes on without.
    const lock = await navigator.wakeLock?.request("screen").catch(() => null);
    if (this.#wanted) this.#lock = lock ?? null;
    else lock?.release();
  }
}
