// Recording of a conversation: the caller on the left, the answers on the right. It stays in this page until it is downloaded.

/** Recording formats, in order of preference. */
export const KINDS = ["audio/webm;codecs=opus", "audio/ogg;codecs=opus", "audio/mp4"];
const BITS_PER_SECOND = 64_000;
/** Milliseconds between two chunks. */
const PIECE_MS = 1000;
/** Largest size in bytes, more than two hours; the recording ends there. */
const MOST_BYTES = 64 << 20;

export class Recorder {
  #context;
  #merger;
  /** Microphone and answer. @type {[MediaStreamAudioSourceNode | null, MediaStreamAudioSourceNode | null]} */
  #sources = [null, null];
  #recorder;
  /** @type {Blob[]} */
  #pieces = [];
  #bytes = 0;
  #stopped;

  /**
   * Returns a running recorder of this microphone, or null if the browser has none.
   *
   * @param {AudioContext} context
   * @param {MediaStream} microphone
   */
  static of(context, microphone) {
    const kind = window.MediaRecorder && KINDS.find((kind) => MediaRecorder.isTypeSupported(kind));
    return kind ? new Recorder(context, microphone, kind) : null;
  }

  /**
   * @param {AudioContext} context
   * @param {MediaStream} microphone
   * @param {string} kind recording format
   */
  constructor(context, microphone, kind) {
    this.#context = context;
    this.#merger = context.createChannelMerger(2);
    const destination = context.createMediaStreamDestination();
    this.#merger.connect(destination);
    this.setMicrophone(microphone);
    this.#recorder = new MediaRecorder(destination.stream, { mimeType: kind, audioBitsPerSecond: BITS_PER_SECOND });
    this.#recorder.addEventListener("dataavailable", ({ data }) => this.#keep(data));
    this.#stopped = new Promise((resolve) => this.#recorder.addEventListener("stop", resolve, { once: true }));
    this.#recorder.start(PIECE_MS);
  }

  /** @param {MediaStream} stream */
  setMicrophone(stream) {
    this.#connect(stream, 0);
  }

  /** @param {MediaStream} stream */
  setAnswer(stream) {
    this.#connect(stream, 1);
  }

  /** Ends the recording; resolves once it is complete. */
  async stop() {
    if (this.#recorder.state !== "inactive") this.#recorder.stop();
    await this.#stopped;
  }

  /** Returns the recording so far, and its file extension: { blob, ending }. */
  async sound() {
    if (this.#recorder.state === "recording") {
      const piece = new Promise((resolve) => this.#recorder.addEventListener("dataavailable", resolve, { once: true }));
      this.#recorder.requestData();
      await piece;
    }
    const type = this.#recorder.mimeType;
    return { blob: new Blob(this.#pieces, { type }), ending: type.includes("mp4") ? "m4a" : (/audio\/(\w+)/.exec(type)?.[1] ?? "webm") };
  }

  /**
   * @param {MediaStream} stream
   * @param {0 | 1} channel
   */
  #connect(stream, channel) {
    this.#sources[channel]?.disconnect();
    const source = this.#context.createMediaStreamSource(stream);
    this.#sources[channel] = source;
    source.connect(this.#merger, 0, channel);
  }

  /** @param {Blob} piece */
  #keep(piece) {
    this.#bytes += piece.size;
    this.#pieces.push(piece);
    if (this.#bytes > MOST_BYTES) this.stop();
  }
}
