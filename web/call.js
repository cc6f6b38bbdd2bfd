// One call over WebRTC, with the Realtime API: an offer posted to /v1/realtime/calls, sound on the peer connection,
// events on its data channel. Knows nothing of the page.

import { authorization } from "./key.js";

const CALLS = "/v1/realtime/calls";
const ICE_SERVERS = "/v1/realtime/ice_servers";
/** How long a connection may stay interrupted before the call counts as lost. */
const LOST_AFTER_MS = 5000;

/** Why a call could not be made or went on no longer; `message` is written for the person who called. */
export class CallError extends Error {
  /** Whether calling again may succeed. */
  retryable = false;
  /** Whether a key would help. */
  needsKey = false;

  static retryable(message) {
    return Object.assign(new CallError(message), { retryable: true });
  }
}

/** Relays for callers that no direct path reaches, as the server names them. Throws a CallError if it does not let this page in. */
export async function iceServers() {
  const reply = await request(ICE_SERVERS);
  if (reply.status === 401 || reply.status === 403) throw await refusal(reply);
  if (!reply.ok) return [];
  return (await reply.json().catch(() => ({}))).ice_servers ?? [];
}

/** A request to the server, with the key if there is one. */
async function request(path, { headers, ...options } = {}) {
  try {
    return await fetch(path, { ...options, headers: { ...headers, ...authorization() } });
  } catch {
    throw CallError.retryable("The server does not answer. Is it still running?");
  }
}

/** Asks for the microphone. Throws a CallError that says in plain words why there is none. */
export async function openMicrophone() {
  if (!window.isSecureContext || !navigator.mediaDevices) {
    throw new CallError(
      "Browsers give the microphone only to pages on https:// or on this machine itself. " +
        "Open this page as http://127.0.0.1 with the server's port, or start the server with --lan or behind https.",
    );
  }
  try {
    return await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 },
    });
  } catch (error) {
    throw new CallError(microphoneProblem(error));
  }
}

function microphoneProblem(error) {
  switch (error.name) {
    case "NotAllowedError":
    case "SecurityError":
      return "The microphone was denied. Allow it for this page in the browser's address bar, then start again.";
    case "NotFoundError":
      return "No microphone was found. Plug one in or switch it on, then start again.";
    case "NotReadableError":
    case "AbortError":
      return "The microphone could not be opened: another program may be using it.";
    default:
      return `The microphone could not be opened (${error.message || error.name}).`;
  }
}

/**
 * A call in progress. Dispatches:
 * - `event`: detail is one server event, parsed;
 * - `sound`: detail is the remote MediaStream, once;
 * - `open`: events can be sent;
 * - `lost`: the call ended without hangUp(); detail is a retryable CallError.
 */
export class Call extends EventTarget {
  #peer;
  #channel;
  /** Where the server keeps this call; null until it has answered. */
  #location = null;
  #over = false;
  #lostTimer = 0;

  /**
   * @param {MediaStream} microphone what is sent; the call does not stop it
   * @param {RTCIceServer[]} iceServers relays
   */
  constructor(microphone, iceServers) {
    super();
    this.#peer = new RTCPeerConnection({ iceServers });
    this.#channel = this.#peer.createDataChannel("oai-events");
    for (const track of microphone.getAudioTracks()) this.#peer.addTrack(track, microphone);
    this.#peer.addEventListener("track", ({ track, streams }) => {
      this.dispatchEvent(new CustomEvent("sound", { detail: streams[0] ?? new MediaStream([track]) }));
    });
    this.#peer.addEventListener("connectionstatechange", () => this.#connectionChanged());
    this.#channel.addEventListener("open", () => this.dispatchEvent(new Event("open")));
    this.#channel.addEventListener("message", ({ data }) => {
      if (!this.#over) this.dispatchEvent(new CustomEvent("event", { detail: JSON.parse(data) }));
    });
    this.#channel.addEventListener("close", () => this.#lose("The server ended the call."));
  }

  /** Connects; resolves once the server has answered. Throws a CallError after taking everything down. */
  async connect() {
    try {
      await this.#peer.setLocalDescription();
      const answer = await this.#exchange(this.#peer.localDescription.sdp);
      if (this.#over) return this.#tellServer();
      await this.#peer.setRemoteDescription({ type: "answer", sdp: answer });
    } catch (error) {
      this.#close();
      throw error instanceof CallError ? error : new CallError(`The call could not be set up (${error.message}).`);
    }
  }

  /** Sends one client event; without effect before `open` and after the end. */
  send(event) {
    if (this.#channel.readyState === "open") this.#channel.send(JSON.stringify(event));
  }

  /** Ends the call on both sides. */
  hangUp() {
    if (this.#over) return;
    this.#tellServer();
    this.#close();
  }

  async #exchange(offer) {
    const reply = await request(CALLS, { method: "POST", headers: { "Content-Type": "application/sdp" }, body: offer });
    if (!reply.ok) throw await refusal(reply);
    this.#location = reply.headers.get("Location");
    return reply.text();
  }

  #connectionChanged() {
    const state = this.#peer.connectionState;
    clearTimeout(this.#lostTimer);
    if (state === "failed") this.#lose("The connection was lost. Check the network and start again.");
    if (state === "disconnected") {
      this.#lostTimer = setTimeout(() => this.#lose("The connection was lost."), LOST_AFTER_MS);
    }
  }

  #lose(message) {
    if (this.#over) return;
    this.#tellServer();
    this.#close();
    this.dispatchEvent(new CustomEvent("lost", { detail: CallError.retryable(message) }));
  }

  #tellServer() {
    if (!this.#location) return;
    // The page may be closing: keepalive lets the request outlive it. A server that is gone needs no hang-up.
    request(`${this.#location}/hangup`, { method: "POST", keepalive: true }).catch(() => {});
    this.#location = null;
  }

  #close() {
    this.#over = true;
    clearTimeout(this.#lostTimer);
    this.#channel.close();
    this.#peer.close();
  }
}

/** What a refused request means for the person who called. */
async function refusal(reply) {
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
      return CallError.retryable("The server is busy: every place is taken. Try again in a moment.");
    default: {
      const error = new CallError(`The server refused the call${said ? because : ` (status ${reply.status}).`}`);
      error.retryable = reply.status >= 500;
      return error;
    }
  }
}
