// Push-to-talk: a button that the caller holds while speaking, by finger, mouse, space or enter.

/** Shortest hold; a shorter one discards the turn. */
const SHORTEST_MS = 250;
/** Delay of the commit after the release, for audio on its way to the server. */
const TAIL_MS = 150;

export class HoldButton {
  #button;
  #tell;
  /** Begin of the hold. @type {number | null} */
  #since = null;

  /**
   * @param {HTMLButtonElement} button
   * @param {{ held: () => void, released: (ms: number | null) => void }} tell `released` gets the duration of the hold, or null for
   *   a slip
   */
  constructor(button, tell) {
    this.#button = button;
    this.#tell = tell;
    button.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      button.setPointerCapture(event.pointerId);
      this.#hold();
    });
    for (const type of ["pointerup", "pointercancel", "blur"]) button.addEventListener(type, () => this.#release());
    button.addEventListener("keydown", (event) => {
      if (!isTalkKey(event) || event.repeat) return;
      event.preventDefault();
      this.#hold();
    });
    button.addEventListener("keyup", (event) => {
      if (isTalkKey(event)) this.#release();
    });
    // A long press on a phone would open a menu.
    button.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  #hold() {
    if (this.#since !== null) return;
    this.#since = performance.now();
    this.#button.classList.add("held");
    this.#tell.held();
  }

  #release() {
    if (this.#since === null) return;
    const ms = performance.now() - this.#since;
    this.#since = null;
    this.#button.classList.remove("held");
    if (ms < SHORTEST_MS) this.#tell.released(null);
    else setTimeout(() => this.#tell.released(ms), TAIL_MS);
  }
}

/** @param {KeyboardEvent} event */
function isTalkKey({ key }) {
  return key === " " || key === "Enter";
}
