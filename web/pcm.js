// Samples on the wire and in files: 16 bit little-endian, mono.

const LOUDEST = 32767;

/** @param {Float32Array} samples from -1 to 1 */
export function toBase64(samples) {
  return btoa(String.fromCharCode(...bytesOf(samples)));
}

/** Returns samples from -1 to 1. @param {string} text */
export function fromBase64(text) {
  return samplesOf(Uint8Array.from(atob(text), (char) => char.charCodeAt(0)));
}

/** Returns samples from -1 to 1. @param {Uint8Array} bytes */
export function samplesOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float32Array.from({ length: bytes.length >> 1 }, (_, i) => view.getInt16(2 * i, true) / LOUDEST);
}

/**
 * Returns a wav file.
 *
 * @param {Float32Array[]} sound samples from -1 to 1
 * @param {number} rate in Hz
 */
export function wave(sound, rate) {
  const parts = sound.map(bytesOf);
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const head = new DataView(new ArrayBuffer(44));
  /** @type {[number, string][]} */
  const names = [[0, "RIFF"], [8, "WAVE"], [12, "fmt "], [36, "data"]];
  for (const [at, name] of names) [...name].forEach((char, i) => head.setUint8(at + i, char.charCodeAt(0)));
  /** @type {[number, number][]} */
  const sizes = [[4, 36 + length], [16, 16], [24, rate], [28, 2 * rate], [40, length]];
  for (const [at, size] of sizes) head.setUint32(at, size, true);
  /** @type {[number, number][]} */
  const shorts = [[20, 1], [22, 1], [32, 2], [34, 16]];
  for (const [at, size] of shorts) head.setUint16(at, size, true);
  return new Blob([head, ...parts], { type: "audio/wav" });
}

/** @param {Float32Array} samples from -1 to 1 */
function bytesOf(samples) {
  const view = new DataView(new ArrayBuffer(2 * samples.length));
  samples.forEach((sample, i) => view.setInt16(2 * i, Math.max(-1, Math.min(1, sample)) * LOUDEST, true));
  return new Uint8Array(view.buffer);
}
