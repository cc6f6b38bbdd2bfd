// Globals of the pages in npm_agents_realtime_webrtc.mjs and firefox_webrtc.mjs: for checks only.

import type * as Agents from "@openai/agents-realtime";

declare global {
  // `var` makes a property of `window`.
  var OpenAIAgentsRealtime: typeof Agents;
  var session: Agents.RealtimeSession;
  /** Plays base64 of 16 bit little-endian samples to the page's microphone. */
  var say: (text: string) => void;
  /** Reports to the script. */
  var happened: (kind: string, what: unknown) => void;
  /** Samples before the first answer, then those of each answer. */
  var parts: (typeof recorded)[];
  /** Server events that the script has not read yet. */
  var happenings: { type: string }[];
  /** Sound before the first answer, then that of each answer, in pieces. */
  var heard: Float32Array<ArrayBuffer>[][];
}
