// Headless Chromium with a microphone made of a file.

import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { chromium } from "playwright-core";

/** @import { Browser, BrowserContextOptions } from "playwright-core" */
/** @typedef {import("playwright-core").Page} Page */

/** Chromium from Debian; no other browser is fetched. */
const EXECUTABLE = process.env.REPARTEE_CHROMIUM ?? "/usr/bin/chromium";

/** No background traffic; all restrictions of a normal browser hold, such as a tap before sound. */
const QUIET = [
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-quic",
  "--allow-loopback-in-peer-connection",
];

/** Fake microphones. */
export const MICROPHONE = {
  /** A file that plays once, from when the page opens the microphone; then silence. */
  file: (/** @type {string} */ path) => [
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    `--use-file-for-fake-audio-capture=${path}%noloop`,
  ],
  /** The person denies the microphone. */
  denied: ["--use-fake-device-for-media-stream", "--deny-permission-prompts"],
  /** Chromium's own: a beep each second. */
  beeps: ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"],
};

/** A browser with this microphone. @param {string[]} microphone */
export function launch(microphone) {
  if (!existsSync(EXECUTABLE)) throw new Error(`${EXECUTABLE} is missing: run \`make setup-test\` first`);
  return chromium.launch({
    executablePath: EXECUTABLE,
    // Chromium has no sandbox for root, and build machines often run as root.
    args: [...QUIET, ...microphone, ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])],
  });
}

/**
 * Opens an isolated page for `use`, and always closes it.
 *
 * @template Result
 * @param {Browser} browser
 * @param {(page: Page) => Promise<Result>} use
 * @param {BrowserContextOptions} options of its context
 */
export async function withPageOf(browser, use, options = {}) {
  const context = await browser.newContext({ bypassCSP: true, viewport: { width: 390, height: 780 }, ...options });
  try {
    const page = await context.newPage();
    page.on("pageerror", (error) => console.error(`page: ${error.stack}`));
    return await use(page);
  } finally {
    await context.close();
  }
}

/**
 * The same in a browser of its own.
 *
 * @template Result
 * @param {string[]} microphone
 * @param {(page: Page) => Promise<Result>} use
 * @param {BrowserContextOptions} options
 */
export async function withPage(microphone, use, options = {}) {
  const browser = await launch(microphone);
  try {
    return await withPageOf(browser, use, options);
  } finally {
    await browser.close();
  }
}

/**
 * Runs in the page: keeps what the <audio> element is given to play from now on. Read from its track, which waits for a reader:
 * an AudioContext has a clock of its own and leaves out what it has no time for, so on a busy machine its recording is worse
 * than what is played.
 */
export function record() {
  const stream = /** @type {MediaStream} */ (document.querySelector("audio").srcObject);
  const [track] = stream.getAudioTracks();
  if (!track) throw new Error("the <audio> element plays no track");
  const reader = new MediaStreamTrackProcessor({ track: track.clone(), maxBufferSize: 1000 }).readable.getReader();
  window.recorded = [];
  // Time without any output of the receiver, not even silence, because nothing requested samples.
  window.stalledMs = 0;
  /** @type {number | null} */
  let due = null;
  /** @type {(result: ReadableStreamReadResult<AudioData>) => Promise<void>} */
  const read = async ({ done, value }) => {
    if (done) return;
    const { timestamp, numberOfFrames: length, sampleRate: rate } = value;
    const samples = new Float32Array(length);
    value.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
    value.close();
    window.recorded.push({ samples, rate });
    // Its stamps are of a clock that jitters by some tenths of a millisecond.
    if (due !== null && timestamp - due > 5000) window.stalledMs += (timestamp - due) / 1000;
    due = timestamp + (length / rate) * 1e6;
    return reader.read().then(read);
  };
  reader.read().then(read);
}

/**
 * Runs in the page: returns the samples since the last call, as base64 of 16 bit little endian at `rate`.
 *
 * @param {number} rate
 * @returns {Promise<string>}
 */
export async function recording(rate) {
  const kept = window.recorded.splice(0);
  const length = kept.reduce((sum, { samples }) => sum + samples.length, 0);
  if (length === 0) return "";
  const offline = new OfflineAudioContext(1, Math.ceil((length * rate) / kept[0].rate), rate);
  const buffer = offline.createBuffer(1, length, kept[0].rate);
  let place = 0;
  for (const { samples } of kept) {
    buffer.copyToChannel(samples, 0, place);
    place += samples.length;
  }
  const source = offline.createBufferSource();
  source.buffer = buffer;
  source.connect(offline.destination);
  source.start();
  const sound = (await offline.startRendering()).getChannelData(0);
  const bytes = new Uint8Array(Int16Array.from(sound, (x) => Math.max(-1, Math.min(1, x)) * 32767).buffer);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

/**
 * Writes a microphone file: `leadS` of silence, then the questions with `betweenS` of silence after each. They are mono 16 bit PCM
 * of one rate.
 *
 * @param {string} path
 * @param {string[]} questions files
 * @param {number} leadS
 * @param {number} betweenS
 */
export async function writeMicrophone(path, questions, leadS, betweenS) {
  const spoken = await Promise.all(questions.map(async (question) => pcm(await readFile(question), question)));
  const { rate } = spoken[0];
  /** @param {number} seconds */
  const silence = (seconds) => Buffer.alloc(Math.round(seconds * rate) * 2);
  const parts = spoken.flatMap(({ sound }) => [sound, silence(betweenS)]);
  await writeFile(path, wave(rate, Buffer.concat([silence(leadS), ...parts])));
}

/**
 * A wav file of mono 16 bit PCM.
 *
 * @param {number} rate
 * @param {Buffer} sound
 */
export function wave(rate, sound) {
  const head = Buffer.alloc(44);
  head.write("RIFF", 0);
  head.writeUInt32LE(36 + sound.length, 4);
  head.write("WAVEfmt ", 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(rate, 24);
  head.writeUInt32LE(rate * 2, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write("data", 36);
  head.writeUInt32LE(sound.length, 40);
  return Buffer.concat([head, sound]);
}

/**
 * @param {Buffer} wav
 * @param {string} name of its file
 */
function pcm(wav, name) {
  const plain = wav.toString("latin1", 8, 16) === "WAVEfmt " && wav.toString("latin1", 36, 40) === "data";
  if (!plain || wav.readUInt16LE(22) !== 1 || wav.readUInt16LE(34) !== 16) {
    throw new Error(`${name} is not mono 16 bit PCM with a plain header`);
  }
  return { rate: wav.readUInt32LE(24), sound: wav.subarray(44) };
}
