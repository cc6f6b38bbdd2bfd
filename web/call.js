// One call over WebRTC, with the Realtime API: an offer posted to /v1/realtime/calls, sound on the peer connection,
// events on its data channel. Independent of the page.

import { ConnectionWatch, LOST_AFTER_MS } from "./connection_watch.js";
import { CallError, messageOf, refusal, request } from "./server.js";

/** @import { ClientEvent, ServerEvent } from "./types/events.js" */
/** @import { EventTargetOf } from "./types/page.js" */

/**
 * Event of a call's other end. Over a websocket the playout events come from this page, without ids.
 *
 * @typedef {ServerEvent | Omit<ServerEvent<`output_audio_buffer.${"started" | "stopped" | "cleared"}`>, "event_id">} CallEvent
 */

/**
 * @typedef {{ event: CallEvent, sent: ClientEvent, sound: MediaStream, open: undefined, interrupted: boolean, lost: CallError }} CallEvents
 */

const CALLS = "/v1/realtime/calls";
/** Timeout of the first packet, after the server has answered. */
const CONNECT_WITHIN_MS = 8000;

/**
 * A call in progress. Dispatches:
 * - `event`: detail is one server event, parsed;
 * - `sent`: detail is one client event;
 * - `sound`: detail is the remote MediaStream, once;
 * - `open`: events can be sent;
 * - `interrupted`: detail is true when nothing arrives any more, and false when it does again;
 * - `lost`: the call ended without hangUp(); detail is a CallError, `unreachable` if no packet ever came through.
 */
export class Call extends /** @type {EventTargetOf<CallEvents>} */ (EventTarget) {
  #peer;
  #channel;
  /** @type {RTCRtpSender | null} */
  #sender = null;
  #relayed;
  /** URL of this call on the server; null until the server has answered. @type {string | null} */
  #location = null;
  #connected = false;
  #over = false;
  /** True if nothing arrives at present. */
  #silent = false;
  #timer = 0;
  /** @type {ConnectionWatch | null} */
  #watch = null;

  /**
   * @param {MediaStream} microphone stream to send; the call does not stop it
   * @param {RTCIceServer[]} iceServers relays
   */
  constructor(microphone, iceServers) {
    super();
    this.#relayed = iceServers.length > 0;
    this.#peer = new RTCPeerConnection({ iceServers });
    this.#channel = this.#peer.createDataChannel("oai-events");
    for (const track of microphone.getAudioTracks()) this.#sender = this.#peer.addTrack(track, microphone);
    this.#peer.addEventListener("track", ({ track, streams }) => {
      this.dispatchEvent(new CustomEvent("sound", { detail: streams[0] ?? new MediaStream([track]) }));
    });
    this.#peer.addEventListener("connectionstatechange", () => this.#connectionChanged());
    this.#channel.addEventListener("open", () => {
      this.#connected = true;
      clearTimeout(this.#timer);
      this.#watch = new ConnectionWatch(() => this.stats(), (interrupted) => this.#interrupted(interrupted));
      this.dispatchEvent(new Event("open"));
    });
    this.#channel.addEventListener("message", ({ data }) => {
      if (!this.#over) this.dispatchEvent(new CustomEvent("event", { detail: JSON.parse(data) }));
    });
    this.#channel.addEventListener("close", () => this.#lose(CallError.retryable("The server ended the call.")));
  }

  /** Connects; resolves once the server has answered. On failure closes everything and throws a CallError. */
  async connect() {
    try {
      await this.#peer.setLocalDescription();
      const answer = await this.#exchange(this.#peer.localDescription?.sdp ?? "");
      if (this.#over) return this.#tellServer();
      await this.#peer.setRemoteDescription({ type: "answer", sdp: answer });
      this.#timer = setTimeout(() => this.#lose(this.#unreachable()), CONNECT_WITHIN_MS);
    } catch (error) {
      this.#close();
      throw error instanceof CallError ? error : new CallError(`The call could not be set up (${messageOf(error)}).`);
    }
  }

  /** Sends one client event; without effect before `open` and after the end. @param {ClientEvent} event */
  send(event) {
    if (this.#channel.readyState !== "open") return;
    this.#channel.send(JSON.stringify(event));
    this.dispatchEvent(new CustomEvent("sent", { detail: event }));
  }

  /** Cancels the response and drops its unplayed audio. */
  stopAnswer() {
    this.send({ type: "output_audio_buffer.clear" });
  }

  /** Switches to another microphone. @param {MediaStream} stream */
  async setMicrophone(stream) {
    await this.#sender?.replaceTrack(stream.getAudioTracks()[0] ?? null);
  }

  /** Returns the browser's connection statistics. */
  stats() {
    return this.#peer.getStats();
  }

  /** Ends the call on both sides. */
  hangUp() {
    if (this.#over) return;
    this.#tellServer();
    this.#close();
  }

  /** @param {string} offer */
  async #exchange(offer) {
    const reply = await request(CALLS, { method: "POST", headers: { "Content-Type": "application/sdp" }, body: offer });
    if (!reply.ok) throw await refusal(reply);
    this.#location = reply.headers.get("Location");
    return reply.text();
  }

  #connectionChanged() {
    const state = this.#peer.connectionState;
    if (!this.#connected) {
      if (state === "failed") this.#lose(this.#unreachable());
      return;
    }
    if (state === "failed") {
      this.#lose(CallError.retryable("The connection was lost. Check the network and start again."));
    } else if (state === "disconnected" || state === "connected") {
      this.#interrupted(state === "disconnected");
    }
  }

  /** @param {boolean} interrupted */
  #interrupted(interrupted) {
    if (this.#over || interrupted === this.#silent) return;
    this.#silent = interrupted;
    clearTimeout(this.#timer);
    if (interrupted) this.#timer = setTimeout(() => this.#lose(CallError.retryable("The connection was lost.")), LOST_AFTER_MS);
    this.dispatchEvent(new CustomEvent("interrupted", { detail: interrupted }));
  }

  #unreachable() {
    const relay = this.#relayed
      ? "The TURN relay that the server names (webrtc.turn) did not help either."
      : "A TURN relay (webrtc.turn) can carry calls around that; this server names none.";
    return CallError.unreachable(
      "The server answers, but no sound gets through: UDP is blocked on the way, or the server's UDP port (webrtc.udp) is not " +
        `open to this network. ${relay}`,
    );
  }

  /** @param {CallError} problem */
  #lose(problem) {
    if (this.#over) return;
    this.#tellServer();
    this.#close();
    this.dispatchEvent(new CustomEvent("lost", { detail: problem }));
  }

  #tellServer() {
    if (!this.#location) return;
    // The page may be closing: keepalive lets the request outlive it. If the server is gone, no hang-up is needed.
    request(`${this.#location}/hangup`, { method: "POST", keepalive: true }).catch(() => {});
    this.#location = null;
  }

  #close() {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#watch?.stop();
    this.#channel.close();
    this.#peer.close();
  }
}
