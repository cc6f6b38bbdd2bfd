// Requests to the server, and what its refusals mean for the person who calls.

import { authorization } from "./key.js";

const ICE_SERVERS = "/v1/realtime/ice_servers";
const MODELS = "/v1/models";

/** Why a call could not be made or went on no longer; `message` is written for the person who called. */
export class CallError extends Error {
  /** Whether calling again may succeed. */
  retryable = false;
  /** Whether a key would help. */
  needsKey = false;
  /** Whether the server answers, but no packet of the call gets through. */
  unreachable = false;

  static retryable(message) {
    return Object.assign(new CallError(message), { retryable: true });
  }

  static unreachable(message) {
    return Object.assign(new CallError(message), { unreachable: true });
  }
}

/** A request with the key, if there is one. Throws a CallError where nobody answers. */
export async function request(path, { headers, ...options } = {}) {
  try {
    return await fetch(path, { ...options, headers: { ...headers, ...authorization() } });
  } catch {
    throw CallError.retryable("The server does not answer. Is it still running?");
  }
}

/** Relays for callers that no direct path reaches, as the server names them. Throws a CallError if it does not let this page in. */
export async function iceServers() {
  const reply = await request(ICE_SERVERS);
  if (reply.status === 401 || reply.status === 403) throw await refusal(reply);
  if (!reply.ok) return [];
  return (await reply.json().catch(() => ({}))).ice_servers ?? [];
}

/** What the served model can do: {voices, default_voice, tools, transcription}; empty where the server does not say. */
export async function modelFacts() {
  try {
    const reply = await request(MODELS);
    return reply.ok ? ((await reply.json()).data?.[0]?.repartee ?? {}) : {};
  } catch {
    return {};
  }
}

/** The served checkpoint's card: {name, ask, note, remembers}; every field may be missing. */
export async function modelCard() {
  const reply = await fetch("model.json").catch(() => null);
  return reply?.ok ? reply.json().catch(() => ({})) : {};
}

/** What a refused request means for the person who called. */
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
      return new CallError(`The server did not let this page in${because}`);
    case 429:
      return CallError.retryable(`The server takes no more calls from here at the moment${because}`);
    case 503:
      if (code === "server_starting") return CallError.retryable("The server is loading its model. Try again in a moment.");
      return CallError.retryable("The server is busy: every place is taken. Try again in a moment.");
    default: {
      const error = new CallError(`The server refused the call${said ? because : ` (status ${reply.status}).`}`);
      error.retryable = reply.status >= 500;
      return error;
    }
  }
}
