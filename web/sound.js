// Measures a stream: its level, and the onset of sound.

/** Threshold of audible sound, the same as in the server's time to first packet. */
const AUDIBLE_DBFS = -45;
/** Range of the meters below full scale. */
const FLOOR_DBFS = -60;
/** Samples of one reading; 85 ms at 48 kHz, so a reader that comes every 20 ms misses nothing. */
const LOOK_BACK = 4096;
/** Window of one loudness value. */
const WINDOW_MS = 10;

/** Measures a stream without playing it. */
export class LevelMeter {
  #context;
  #analyser;
  #source;
  #samples = new Float32Array(LOOK_BACK);

  /**
   * @param {AudioContext} context a running context
   * @param {MediaStream} stream a remote stream must already be attached to an <audio> element: some browsers deliver
   *   its sound to an analyser only then
   */
  constructor(context, stream) {
    this.#context = context;
    this.#source = context.createMediaStreamSource(stream);
    this.#analyser = context.createAnalyser();
    this.#analyser.fftSize = LOOK_BACK;
    this.#source.connect(this.#analyser);
  }

  close() {
    this.#source.disconnect();
  }

  /** Returns the loudness of the last 40 ms, from 0 (-60 dBFS or less) to 1 (full scale). */
  level() {
    this.#analyser.getFloatTimeDomainData(this.#samples);
    const recent = Math.min(LOOK_BACK, Math.round(this.#context.sampleRate * 0.04));
    const level = 1 - decibels(this.#samples, LOOK_BACK - recent, LOOK_BACK) / FLOOR_DBFS;
    return Math.min(1, Math.max(0, level));
  }

  /**
   * When sound began after `since`, both on the clock of performance.now(); null when there was none.
   * Call it again within the 85 ms that it looks back.
   *
   * @param {number} since
   */
  onsetAfter(since) {
    this.#analyser.getFloatTimeDomainData(this.#samples);
    const now = performance.now();
    const perMs = this.#context.sampleRate / 1000;
    const window = Math.round(WINDOW_MS * perMs);
    for (let start = LOOK_BACK % window; start + window <= LOOK_BACK; start += window) {
      const at = now - (LOOK_BACK - start) / perMs;
      if (at >= since && decibels(this.#samples, start, start + window) > AUDIBLE_DBFS) return at;
    }
    return null;
  }
}

/**
 * Returns the root mean square of samples[start..end], in dBFS.
 *
 * @param {Float32Array} samples
 * @param {number} start
 * @param {number} end
 */
function decibels(samples, start, end) {
  let sum = 0;
  for (const sample of samples.subarray(start, end)) sum += sample * sample;
  return 10 * Math.log10(sum / (end - start) + 1e-12);
}
