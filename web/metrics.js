// Reader of the server's /metrics: samples in the Prometheus text format, and statistics of histograms over time.

/** @typedef {Record<string, string>} Labels */
/** @typedef {{ labels: Labels, value: number }} Sample */

/** The samples of one reading. */
export class Reading {
  /** Name -> its samples. @type {Map<string, Sample[]>} */
  #samples = new Map();

  /**
   * @param {string} text in the Prometheus text format
   * @param {number} at time of the reading, in ms
   */
  constructor(text, at) {
    this.at = at;
    for (const line of text.split("\n")) {
      const [, name, labels, value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
      if (!name) continue;
      const sample = { labels: readLabels(labels ?? ""), value: Number(value) };
      const samples = this.#samples.get(name);
      if (samples) samples.push(sample);
      else this.#samples.set(name, [sample]);
    }
  }

  /** Returns the samples of this name; empty if the server has none. @param {string} name */
  all(name) {
    return this.#samples.get(name) ?? [];
  }

  /**
   * Returns the sum over all samples with these labels.
   *
   * @param {string} name
   * @param {Labels} labels
   */
  sum(name, labels = {}) {
    return this.all(name)
      .filter((sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value))
      .reduce((sum, { value }) => sum + value, 0);
  }
}

/**
 * @param {string} text
 * @returns {Labels}
 */
function readLabels(text) {
  const pairs = [...text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)];
  /** @param {string} value */
  const plain = (value) => value.replace(/\\(.)/g, (_, char) => (char === "n" ? "\n" : char));
  return Object.fromEntries(pairs.map(([, key = "", value = ""]) => [key, plain(value)]));
}

/**
 * Returns the increase of a counter between two readings. After a restart the server counts from zero.
 *
 * @param {Reading} before
 * @param {Reading} now
 * @param {string} name
 * @param {Labels} [labels]
 */
export function increase(before, now, name, labels) {
  const [from, to] = [before.sum(name, labels), now.sum(name, labels)];
  return to >= from ? to - from : to;
}

/**
 * Returns the mean of a histogram's values between two readings; null if there are none.
 *
 * @param {Reading} before
 * @param {Reading} now
 * @param {string} name
 * @param {Labels} [labels]
 */
export function mean(before, now, name, labels) {
  const count = increase(before, now, `${name}_count`, labels);
  return count > 0 ? increase(before, now, `${name}_sum`, labels) / count : null;
}

/**
 * Returns the quantile of a histogram's values between two readings, in its unit; null if there are none. Values are assumed to be
 * uniform within a bucket; above the last bound the result is that bound.
 *
 * @param {Reading} before
 * @param {Reading} now
 * @param {string} name
 * @param {number} share of the values below the quantile
 */
export function quantile(before, now, name, share) {
  const bounds = [...new Set(now.all(`${name}_bucket`).flatMap(({ labels }) => labels.le ?? []))];
  const buckets = bounds.map((le) => ({ le: Number(le.replace("+Inf", "Infinity")), count: increase(before, now, `${name}_bucket`, { le }) }));
  buckets.sort((a, b) => a.le - b.le);
  const whole = buckets.at(-1)?.count ?? 0;
  if (whole === 0) return null;
  let [below, from] = [0, 0];
  for (const { le, count } of buckets) {
    if (count >= share * whole) return le === Infinity ? from : from + ((le - from) * (share * whole - below)) / (count - below);
    [below, from] = [count, le];
  }
  return from;
}
