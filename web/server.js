// Requests to the server, with errors in plain words.

import { authorization } from "./key.js";

/**
 * Capabilities of the model; every field may be missing.
 *
 * @typedef {object} ModelFacts
 * @property {string[]} [voices]
 * @property {string} [default_voice]
 * @property {boolean} [hears]
 * @property {boolean} [answers]
 * @property {boolean} [audio_output]
 * @property {boolean} [tools]
 * @property {boolean} [transcription]
 * @property {boolean} [cloning]
 * @property {boolean} [speech]
 * @property {boolean} [speech_only]
 */

/**
 * Card of the served checkpoint; every field may be missing.
 *
 * @typedef {{ name?: string, ask?: string[], note?: string, remembers?: boolean, capabilities?: ModelFacts }} ModelCard
 */

const ICE_SERVERS = "/v1/realtime/ice_servers";
const MODELS = "/v1/models";

/** Error of a call; `message` is written for the caller. */
export class CallError extends Error {
  /** True if another call may succeed. */
  retryable = false;
  /** True if a key would help. */
  needsKey = false;
  /** True if the server answers, but no packet of the call gets through. */
  unreachable = false;

  /** @param {string} message */
  static retryable(message) {
    return Object.assign(new CallError(message), { retryable: true });
  }

  /** @param {string} message */
  static unreachable(message) {
    return Object.assign(new CallError(message), { unreachable: true });
  }
}

/** Returns the message of anything thrown. @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Sends a request with the key, if there is one. Throws a CallError if no reply comes.
 *
 * @param {string} path
 * @param {Omit<RequestInit, "headers"> & { headers?: Record<string, string> }} [options]
 */
export async function request(path, { headers, ...options } = {}) {
  try {
    return await fetch(path, { ...options, headers: { ...headers, ...authorization() } });
  } catch {
    throw CallError.retryable("The server does not answer. Is it still running?");
  }
}

/**
 * Returns the server's TURN relays, for callers without a direct path. Throws a CallError if the server refuses this page.
 *
 * @returns {Promise<RTCIceServer[]>}
 */
export async function iceServers() {
  const reply = await request(ICE_SERVERS);
  if (reply.status === 401 || reply.status === 403) throw await refusal(reply);
  if (!reply.ok) return [];
  return (await reply.json().catch(() => ({}))).ice_servers ?? [];
}

/** Returns the model's capabilities; empty if the server lists none. @returns {Promise<ModelFacts>} */
export async function modelFacts() {
  try {
    const reply = await request(MODELS);
    return reply.ok ? ((await reply.json()).data?.[0]?.repartee ?? {}) : {};
  } catch {
    return {};
  }
}

/** Returns the served checkpoint's card; empty if there is none. @returns {Promise<ModelCard>} */
export async function modelCard() {
  const reply = await fetch("model.json").catch(() => null);
  return reply?.ok ? reply.json().catch(() => ({})) : {};
}

/** Returns the CallError of a refused request. @param {Response} reply */
export async function refusal(reply) {
  const { code, message: said } = await reply.json().then(({ error }) => error ?? {}, () => ({}));
  const because = said ? `: ${said}` : ".";
  switch (reply.status) {
    case 401:
      return Object.assign(
        new CallError(code === "missing_api_key" ? "This server needs a key." : "The server does not know this key."),
        { needsKey: true },
      );
    case 403:
      return new CallError(`The server refused this page${because}`);
    case 429:
      return CallError.retryable(`The server accepts no more calls from this address at the moment${because}`);
    case 503:
      if (code === "server_starting") return CallError.retryable("The server is loading its model. Try again in a moment.");
      return CallError.retryable("The server is full. Try again in a moment.");
    default: {
      const error = new CallError(`The server refused the call${said ? because : ` (status ${reply.status}).`}`);
      error.retryable = reply.status >= 500;
      return error;
    }
  }
}
