// The dialogue of a call: turns server events into turns, states and results of function calls.

import { BoundedMap } from "./bounded_map.js";
import { NextDecisions } from "./decisions.js";
import { FirstSoundWait } from "./first_sound.js";
import { answer } from "./functions.js";
import { contentOf, transcriptOf } from "./items.js";
import { Turn } from "./turns.js";
import { $, alertText, show, showFirstSound } from "./view.js";
import { Marks } from "./waterfall.js";

/** @import { CallEvent } from "./call.js" */
/** @import { OwnTool } from "./functions.js" */
/** @import { Transcript } from "./transcript.js" */
/** @import { ClientEvent, RealtimeResponse, ServerEvent, ServerFunctionCall } from "./types/events.js" */

/** Largest number of responses and items mapped to turns; the oldest are dropped. */
const MAX_KNOWN = 100;

export class Dialogue {
  #send;
  #transcript;
  #remembers;
  #ownTools;
  /** The current turn. @type {Turn | null} */
  #turn = null;
  /** True once its answer was played to the end, or interrupted. */
  #over = false;
  /** Its pending waterfall. @type {Marks | null} */
  #marks = null;
  /** Id of a response or an item -> its turn. @type {BoundedMap<Turn>} */
  #turnOf = new BoundedMap(MAX_KNOWN);
  #decisions = new NextDecisions();
  /** Id of an item -> words that came before its turn was committed. @type {Map<string, string>} */
  #early = new Map();
  #wait = new FirstSoundWait();
  /** Last time at which the caller was loud. @type {number | null} */
  #voiceAt = null;
  #speechStartMs = 0;
  /** Items of finished turns, to be deleted for a model without memory. @type {string[]} */
  #items = [];

  /**
   * @param {(event: ClientEvent) => void} send sends a client event
   * @param {Transcript} transcript receives the turns
   * @param {boolean} remembers true if the model follows a conversation
   * @param {() => OwnTool[]} ownTools returns the functions that the user has written
   */
  constructor(send, transcript, remembers, ownTools) {
    this.#send = send;
    this.#transcript = transcript;
    this.#remembers = remembers;
    this.#ownTools = ownTools;
  }

  /** Handles voice of the caller on this page's own meter. */
  voiced() {
    this.#voiceAt = performance.now();
  }

  /** Time after which a sound is the first of a turn; null if none is awaited. */
  get awaitedSince() {
    return this.#wait.soundAfter;
  }

  /** Handles the first sound of the answer. @param {number} at */
  firstSound(at) {
    const ms = this.#wait.heard(at);
    if (ms === null) return;
    showFirstSound(ms);
    this.#marks?.mark("heard", at);
    this.#turn?.firstSound(ms, this.#marks?.stages() ?? null);
  }

  /** Sends a written message. @param {string} text */
  write(text) {
    this.#begin().said(text, { written: true });
    // The earlier answer sounds until the server has dropped it.
    this.#wait.begin(document.body.dataset.state === "speaking");
    const content = [{ type: /** @type {const} */ ("input_text"), text }];
    this.#send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
    this.#send({ type: "response.create" });
    show("thinking");
  }

  /** Ends the turn at the release of the button. @param {number} heldMs */
  release(heldMs) {
    this.#begin().lasted(heldMs);
    this.#send({ type: "input_audio_buffer.commit" });
    this.#send({ type: "response.create" });
    show("thinking");
  }

  /** Marks open turns as unfinished, because the call was lost or is over. @param {string} [problem] */
  end(problem) {
    // A turn that was complete before has lost nothing.
    if (!this.#over) this.#turn?.finish(problem);
    this.#turn = null;
    this.#wait.end();
    this.#turnOf.clear();
    this.#early.clear();
    this.#decisions.clear();
    this.#items = [];
  }

  /** Handles one server event; other types are ignored. @param {CallEvent} event */
  handle(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#speechStartMs = event.audio_start_ms;
        show("hearing");
        break;
      case "input_audio_buffer.speech_stopped":
        this.#begin(this.#voiceAt ?? performance.now()).lasted(event.audio_end_ms - this.#speechStartMs);
        show("thinking");
        break;
      case "repartee.decision":
        this.#decisions.add(event, this.#turn);
        break;
      case "input_audio_buffer.committed":
        this.#wait.begin(false);
        if (this.#turn) {
          this.#turnOf.set(event.item_id, this.#turn);
          const early = this.#early.get(event.item_id);
          if (early) this.#turn.said(early, { more: true });
        }
        this.#early.clear();
        break;
      case "conversation.item.input_audio_transcription.delta":
        if (this.#turnOf.has(event.item_id)) {
          this.#turnOf.get(event.item_id)?.said(event.delta, { more: true });
        } else {
          this.#early.set(event.item_id, (this.#early.get(event.item_id) ?? "") + event.delta);
        }
        break;
      case "conversation.item.input_audio_transcription.completed":
        // This event may come after the next turn has begun.
        (this.#turnOf.get(event.item_id) ?? this.#turn)?.said(event.transcript);
        break;
      case "conversation.item.done":
        if (!this.#remembers) this.#items.push(event.item.id);
        break;
      case "conversation.item.truncated":
        // The event has the heard time; the item has the heard words.
        this.#send({ type: "conversation.item.retrieve", item_id: event.item_id });
        break;
      case "conversation.item.retrieved":
        this.#turnOf.get(event.item.id)?.heard(transcriptOf(event.item), event.item.id);
        this.#forgetItems();
        break;
      case "response.created":
        this.#turnOf.set(event.response.id, this.#turn ?? this.#begin());
        this.#over = false;
        this.#marks?.mark("created");
        break;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.#marks?.mark("worded");
        this.#worded(event);
        break;
      case "response.done":
        this.#responseDone(event.response);
        break;
      case "output_audio_buffer.started":
        this.#wait.started();
        this.#marks?.mark("sent");
        show("speaking");
        break;
      case "output_audio_buffer.cleared":
        this.#played(event.response_id);
        this.#turnOf.get(event.response_id)?.interrupted();
        // Committed by the button; otherwise the caller may still be speaking.
        if (document.body.dataset.state === "speaking") show("listening");
        break;
      case "output_audio_buffer.stopped":
        this.#played(event.response_id);
        this.#forgetItems();
        show("listening");
        break;
      case "error":
        alertText(`The server reports: ${event.error.message}`);
        if (document.body.dataset.state === "thinking") show("listening");
        break;
    }
  }

  /** Begins a turn. @param {number} [silentSince] end of the caller's voice, for a spoken turn with endpointing */
  #begin(silentSince) {
    // The hints make room for the conversation.
    $("hints").open = false;
    const turn = new Turn($("turns"), this.#transcript.add(), () => this.#transcript.keep());
    const marks = new Marks(silentSince ?? performance.now());
    if (silentSince !== undefined) marks.mark("ended");
    [this.#turn, this.#marks, this.#over] = [turn, marks, false];
    this.#decisions.give(turn);
    return turn;
  }

  /** @param {ServerEvent<"response.output_audio_transcript.delta" | "response.output_text.delta">} event */
  #worded({ response_id: response, item_id: item, delta }) {
    const turn = this.#turnOf.get(response);
    turn?.add(delta, item);
    if (turn) this.#turnOf.set(item, turn);
  }

  /** @param {RealtimeResponse} response */
  #responseDone({ id, status, status_details: details, output = [] }) {
    const turn = this.#turnOf.get(id);
    const calls = status === "completed" ? output.filter((item) => item.type === "function_call") : [];
    if (calls.length) return this.#answerCalls(turn, calls);
    if (status === "failed") turn?.finish(details?.error?.message ?? "The answer failed.");
    else if (status === "incomplete") turn?.finish("The answer was cut off at its limit.");
    else turn?.finish();
    if (status === "cancelled") turn?.interrupted();
    // With audio the state follows the playback, which ends later.
    const spoken = output.some((item) => contentOf(item).some(({ type }) => type === "output_audio"));
    if (spoken || turn !== this.#turn) return;
    this.#over = true;
    if (document.body.dataset.state === "thinking") show("listening");
  }

  /** Notes the end of a response's playback. @param {string} response id */
  #played(response) {
    if (this.#turnOf.get(response) === this.#turn) this.#over = true;
  }

  /**
   * Runs the functions that the model has called, and requests the next response.
   *
   * @param {Turn | undefined} turn
   * @param {ServerFunctionCall[]} calls
   */
  #answerCalls(turn, calls) {
    for (const call of calls) {
      const output = answer(call, this.#ownTools());
      turn?.called({ name: call.name, arguments: call.arguments, result: output.output });
      this.#send({ type: "conversation.item.create", item: output });
    }
    this.#send({ type: "response.create" });
  }

  /** Handles the end of a response's playback, also by barge-in. */
  #forgetItems() {
    if (this.#remembers) return;
    for (const id of this.#items.splice(0)) this.#send({ type: "conversation.item.delete", item_id: id });
  }
}
