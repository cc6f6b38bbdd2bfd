// Globals of the page that the tests make, and its elements: for checks only.

import type { RunOptions, AxeResults } from "axe-core";
import type { PageElements } from "../../web/types/elements.js";
import type { ClientEvent } from "../../web/types/events.js";

/** Call's other end inside of the page; see standin.js. */
interface Standin {
  /** Events of the page. */
  events: ClientEvent[];
  /** Number of events that ask for decisions. */
  decisions: number;
  /** Number of posted offers. */
  calls: number;
  /** Number of posted hang-ups. */
  hangups: number;
  /** Resolves when the call is open. */
  opened: Promise<unknown>;
  /** Reply that refuses offers. */
  refuse?: { status: number; error: object } | null;
  send(event: object): void;
  sound(on: boolean): void;
  level(): number;
  listenAnew(): void;
  close(): void;
}

/** Clock that the test advances; see page.test.mjs. */
interface ScriptedClock {
  now: number;
  /** Begin of the sound. */
  onset: number;
  advance(ms: number): void;
}

declare global {
  // `var` makes a property of `window`.
  var standin: Standin;
  var clock: ScriptedClock;
  var axe: { run(context: Document, options: RunOptions): Promise<AxeResults> };
  /** Tracks of the microphones that the page opened. */
  var watched: MediaStreamTrack[];
  /** Samples that the <audio> element was given to play. */
  var recorded: { samples: Float32Array<ArrayBuffer>; rate: number }[];
  /** Time without any output of the receiver. */
  var stalledMs: number;
  var stalledBeforeMs: number | undefined;
  /** Statistics of the last reading. */
  var last: Record<string, number> | undefined;
  /** Every state that the page showed. */
  var states: (string | undefined)[];
  /** Number of websockets that the page has opened. */
  var sockets: number;
  var connection: RTCPeerConnection;
  /** Requests and releases of the screen's lock. */
  var locks: string[];
  /** Microphone that the page asked for, and that it got. */
  var asked: unknown;
  var opened: MediaStream;

  interface Document {
    // The pages have these elements.
    querySelector<Id extends keyof PageElements>(selectors: `#${Id}`): PageElements[Id];
    querySelector(selectors: "audio"): HTMLAudioElement;
    /** Of the page in gateway/examples. */
    querySelector(selectors: "#answer"): HTMLParagraphElement;
    /** All others may be absent. */
    querySelector(selectors: string): HTMLElement | null;
  }

  /** Reader of a track's frames; Chromium only, so TypeScript has no type for it. */
  class MediaStreamTrackProcessor {
    constructor(init: { track: MediaStreamTrack; maxBufferSize?: number });
    readonly readable: ReadableStream<AudioData>;
  }
}
