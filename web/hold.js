// Push-to-talk: a button that is held while one speaks, by finger, mouse, space or enter.

/** A shorter hold was a slip. */
const SHORTEST_MS = 250;
/** What is on its way to the server when the button is let go. */
const TAIL_MS = 150;

export class HoldButton {
  #button;
  #tell;
  #since = null;

  /**
   * @param {HTMLButtonElement} button
   * @param {{ held: () => void, released: (ms: number | null) => void }} tell `released` gets how long it was held, or null for
   *   a slip
   */
  constructor(button, tell) {
    [this.#button, this.#tell] = [button, tell];
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

function isTalkKey({ key }) {
  return key === " " || key === "Enter";
}
