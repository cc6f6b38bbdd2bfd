// Samples on the wire: base64 of 16 bit little-endian, mono.

const LOUDEST = 32767;

/** @param {Float32Array} samples from -1 to 1 */
export function toBase64(samples) {
  const view = new DataView(new ArrayBuffer(2 * samples.length));
  samples.forEach((sample, i) => view.setInt16(2 * i, Math.max(-1, Math.min(1, sample)) * LOUDEST, true));
  return btoa(String.fromCharCode(...new Uint8Array(view.buffer)));
}

/** Returns samples from -1 to 1. @param {string} text */
export function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length >> 1 }, (_, i) => view.getInt16(2 * i, true) / LOUDEST);
}
