// One call over WebRTC, as the Realtime wire has it: an offer posted to /v1/realtime/calls, sound on the peer connection,
// events on its data channel. Knows nothing of the page.

const CALLS = "/v1/realtime/calls";
/** How long a connection may stay interrupted before the call counts as lost. */
const LOST_AFTER_MS = 5000;

/** Why a call could not be made or went on no longer; `message` is written for the person who called. */
export class CallError extends Error {}

/** Asks for the microphone. Throws a CallError that says in plain words why there is none. */
export async function openMicrophone() {
  if (!window.isSecureContext || !navigator.mediaDevices) {
    throw new CallError(
      "Browsers give the microphone only to pages on https:// or on this machine itself. " +
        "Open this page as http://127.0.0.1 with the server's port, or put the server behind https.",
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
 * - `lost`: the call ended without hangUp(); detail is a CallError.
 */
export class Call extends EventTarget {
  #peer = new RTCPeerConnection();
  #channel = this.#peer.createDataChannel("oai-events");
  #microphone;
  /** Where the server keeps this call; null until it has answered. */
  #location = null;
  #over = false;
  #lostTimer = 0;

  /** @param {MediaStream} microphone belongs to the call from here on: the call stops it when it ends */
  constructor(microphone) {
    super();
    this.#microphone = microphone;
    for (const track of microphone.getAudioTracks()) {
      this.#peer.addTrack(track, microphone);
      track.addEventListener("ended", () => this.#lose("The microphone went away, so the call was ended."));
    }
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
      this.#takeDown();
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
    this.#takeDown();
  }

  async #exchange(offer) {
    let reply;
    try {
      reply = await fetch(CALLS, { method: "POST", headers: { "Content-Type": "application/sdp" }, body: offer });
    } catch {
      throw new CallError("The server does not answer. Is it still running?");
    }
    if (!reply.ok) throw new CallError(await refusal(reply));
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
    this.#takeDown();
    this.dispatchEvent(new CustomEvent("lost", { detail: new CallError(message) }));
  }

  #tellServer() {
    if (!this.#location) return;
    // The page may be closing: keepalive lets the request outlive it. A server that is gone needs no hang-up.
    fetch(`${this.#location}/hangup`, { method: "POST", keepalive: true }).catch(() => {});
    this.#location = null;
  }

  #takeDown() {
    this.#over = true;
    clearTimeout(this.#lostTimer);
    for (const track of this.#microphone.getTracks()) track.stop();
    this.#channel.close();
    this.#peer.close();
  }
}

/** What a refused call says to the caller. */
async function refusal(reply) {
  const said = await reply.json().then((body) => body.error?.message, () => null);
  if (reply.status === 503) return `The server is busy: every place is taken. Try again in a moment.`;
  if (reply.status === 401 || reply.status === 403) return `The server did not let this page in${said ? `: ${said}` : "."}`;
  return `The server refused the call${said ? `: ${said}` : ` (status ${reply.status}).`}`;
}
