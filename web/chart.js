// A line chart over time on a canvas, without interaction.

/** Space for the numbers at the left, in CSS pixels. */
const MARGIN = 64;

/**
 * Draws lines into a canvas: `lines` are { colour, points: [{ at, value }] } (a null value is a gap), times in ms from `from` to `to`;
 * `unit` follows the numbers. Colours are names of CSS variables.
 */
export function drawChart(canvas, lines, from, to, unit = "") {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const context = canvas.getContext("2d");
  // The variable's own value has the colours of both themes; a property's computed value has the one in use.
  const colour = (name) => {
    canvas.style.color = `var(${name})`;
    return getComputedStyle(canvas).color;
  };
  context.scale(scale, scale);
  context.font = getComputedStyle(canvas).font;
  const most = roundUp(Math.max(1, ...lines.flatMap(({ points }) => points.map(({ value }) => value ?? 0))));
  const x = (at) => MARGIN + ((at - from) / Math.max(1, to - from)) * (width - MARGIN - 4);
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

/** Returns the next of 1, 2, 5, 10, 20, 50... */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((digit) => digit * power >= value) * power;
}
