// A level over time, drawn as bars that move to the left.

/** Width of a bar and the gap after it, in CSS pixels. */
const BAR = 3;
const GAP = 2;
/** Largest number of bars. */
const MAX_BARS = 300;
/** Height of a bar of silence, in CSS pixels. */
const LEAST = 2;

export class Waveform {
  #canvas;
  /** @type {number[]} */
  #levels = [];
  /** With reduced motion the page shows one bar that grows and shrinks, in CSS. */
  #still = matchMedia("(prefers-reduced-motion: reduce)");

  /** @param {HTMLElement} meter holds the canvas; its colour is that of the bars */
  constructor(meter) {
    this.#canvas = /** @type {HTMLCanvasElement} */ (meter.querySelector("canvas"));
    this.clear();
  }

  /** Adds a bar. @param {number} level from 0 to 1 */
  add(level) {
    this.#levels.push(level);
    if (this.#levels.length > MAX_BARS) this.#levels.shift();
    this.#draw();
  }

  clear() {
    this.#levels = [];
    this.#draw();
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = window.devicePixelRatio || 1;
    // Setting the size also clears the canvas.
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    if (this.#still.matches || width === 0) return;
    const context = /** @type {CanvasRenderingContext2D} */ (this.#canvas.getContext("2d"));
    context.scale(scale, scale);
    context.fillStyle = getComputedStyle(this.#canvas).color;
    const bars = Math.floor(width / (BAR + GAP));
    const shown = this.#levels.slice(-bars);
    for (let i = 0; i < bars; i += 1) {
      const level = shown[i - bars + shown.length] ?? 0;
      const tall = LEAST + level * (height - LEAST);
      context.globalAlpha = level > 0.02 ? 1 : 0.3;
      context.beginPath();
      context.roundRect(i * (BAR + GAP), (height - tall) / 2, BAR, tall, BAR / 2);
      context.fill();
    }
  }
}
