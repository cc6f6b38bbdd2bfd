// A line chart over time on a canvas, without interaction.

/**
 * Point of a line.
 *
 * @typedef {object} ChartPoint
 * @property {number} at time in ms
 * @property {number | null} value null for a gap
 */

/**
 * Line of a chart.
 *
 * @typedef {object} ChartLine
 * @property {string} colour name of a CSS variable
 * @property {ChartPoint[]} points in order of time
 */

/** Space for the numbers at the left, in CSS pixels. */
const MARGIN = 64;

/**
 * Draws lines into a canvas.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {ChartLine[]} lines
 * @param {number} from time of the left edge in ms
 * @param {number} to time of the right edge in ms
 * @param {string} unit follows the numbers
 */
export function drawChart(canvas, lines, from, to, unit = "") {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  // The variable's own value has the colours of both themes; a property's computed value has the one in use.
  /** @param {string} name */
  const colour = (name) => {
    canvas.style.color = `var(${name})`;
    return getComputedStyle(canvas).color;
  };
  context.scale(scale, scale);
  context.font = getComputedStyle(canvas).font;
  const most = roundUp(Math.max(1, ...lines.flatMap(({ points }) => points.map(({ value }) => value ?? 0))));
  /** @param {number} at */
  const x = (at) => MARGIN + ((at - from) / Math.max(1, to - from)) * (width - MARGIN - 4);
  /** @param {number} value */
  const y = (value) => height - 8 - (value / most) * (height - 20);
  context.strokeStyle = colour("--line");
  context.fillStyle = colour("--quiet");
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of [0, most / 2, most]) {
    context.fillText(`${Number(value.toPrecision(3))}${unit}`, MARGIN - 6, y(value));
    context.beginPath();
    context.moveTo(MARGIN, y(value));
    context.lineTo(width, y(value));
    context.stroke();
  }
  context.lineWidth = 2;
  context.lineJoin = "round";
  for (const { colour: name, points } of lines) {
    context.strokeStyle = colour(name);
    context.beginPath();
    let drawing = false;
    for (const { at, value } of points) {
      if (value !== null) drawing ? context.lineTo(x(at), y(value)) : context.moveTo(x(at), y(value));
      drawing = value !== null;
    }
    context.stroke();
  }
}

/** Returns the next of 1, 2, 5, 10, 20, 50... @param {number} value */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((digit) => digit * power >= value) ?? 10) * power;
}
