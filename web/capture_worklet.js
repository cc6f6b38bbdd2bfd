// Audio worklet on the audio thread: posts the microphone's samples to the page, about 20 ms at a time.

const SECONDS = 0.02;

class Capture extends AudioWorkletProcessor {
  #block = new Float32Array(Math.round(sampleRate * SECONDS));
  #filled = 0;

  /** @param {Float32Array[][]} inputs */
  process(inputs) {
    const channel = inputs[0]?.[0];
    for (const sample of channel ?? []) {
      this.#block[this.#filled] = sample;
      this.#filled += 1;
      if (this.#filled === this.#block.length) {
        this.port.postMessage(this.#block);
        this.#filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
