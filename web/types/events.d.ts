// Types of the OpenAI Realtime GA wire format with Repartee's extension, as `gateway/protocol/src` defines it: a section for each of its
// files. `scripts/lint-js` compares the events, not their fields. Only for checks: the server does not serve this file.

// error.rs

/** Error body of events and HTTP responses. */
export interface ErrorBody {
  /** Class of the error. */
  type: "invalid_request_error" | "server_error";
  /** Stable code of the error. */
  code: string | null;
  /** Explanation for a person. */
  message: string;
  /** Dotted path of the invalid field. */
  param: string | null;
  /** Id of the client event that caused the error. */
  event_id?: string;
}

// extension.rs

/** Repartee's extension of one event; absent without warnings. */
export interface EventExtension {
  /** Warnings about settings that were served differently from the request. */
  warnings: string[];
}

// decision.rs

/** Decision of the server about the caller's sound. */
export interface DecisionMade {
  decision: string;
  reason: string;
  /** Input received until the decision. */
  audio_ms: number;
  /** Probability that decided. */
  probability?: number;
  voice_ms?: number;
  silence_ms?: number;
}

// session.rs

/** Function tool as sent. */
export interface FunctionTool {
  type: "function";
  name: string;
  description?: string;
  /** JSON schema of the arguments. */
  parameters?: unknown;
}

/** Repartee's extension of the session configuration; absent if all values are defaults. */
export interface SessionExtension {
  /** Warnings about settings of the last update that are served differently. */
  warnings: string[];
  /** True to start a response speculatively when the caller pauses. */
  speculative_start: boolean;
  /** Length in ms of the slices to answer during a turn; absent for whole turns. */
  slice_ms?: number;
  /** True to send each decision about the caller's sound as `repartee.decision`. */
  decisions: boolean;
}

export type Modality = "audio" | "text";

/** Number of tokens, or `"inf"` for the model's limit. */
export type MaxTokens = number | "inf";

/** Audio encoding on a websocket. */
export type AudioFormat =
  | {
      type: "audio/pcm";
      /** Sample rate in Hz. */
      rate: number;
    }
  | { type: "audio/pcmu" }
  | { type: "audio/pcma" }
  | { type: "audio/opus" };

/** Transcription settings of the caller's turns. */
export interface Transcription {
  model?: string;
  /** Language of the caller, as a hint. */
  language?: string;
  /** Additional prompt for the transcript. */
  prompt?: string;
}

/** Parameters of `server_vad`. */
export interface ServerVad {
  type: "server_vad";
  /** Minimum voice probability of speech, 0 to 1. */
  threshold: number;
  /** Audio before the first speech that belongs to the turn. */
  prefix_padding_ms: number;
  /** Silence that ends a turn. */
  silence_duration_ms: number;
  /** Silence after the end of a response that triggers another one; `null` disables it. */
  idle_timeout_ms: number | null;
  /** True if the end of a turn starts a response. */
  create_response: boolean;
  /** True if the start of a turn cancels the response. */
  interrupt_response: boolean;
}

/** Eagerness of endpointing: a higher value ends turns after less silence. */
export type Eagerness = "low" | "medium" | "high" | "auto";

/** Parameters of `semantic_vad`. */
export interface SemanticVad {
  type: "semantic_vad";
  eagerness: Eagerness;
  /** True if the end of a turn starts a response. */
  create_response: boolean;
  /** True if the start of a turn cancels the response. */
  interrupt_response: boolean;
}

export type TurnDetection = ServerVad | SemanticVad;

/** Noise reduction by the place of the microphone. */
export interface NoiseReduction {
  type: "near_field" | "far_field";
}

/** Settings of the caller's audio. */
export interface AudioInput {
  /** Audio format of `input_audio_buffer.append`. */
  format: AudioFormat;
  /** Noise reduction; `null` for none. */
  noise_reduction: NoiseReduction | null;
  /** Transcription settings; `null` disables transcription. */
  transcription: Transcription | null;
  /** Turn detection; `null` for push-to-talk. */
  turn_detection: TurnDetection | null;
}

/** Settings of the model's audio. */
export interface AudioOutput {
  /** Audio format of `response.output_audio.delta`. */
  format: AudioFormat;
  /** Name of the voice. */
  voice: string;
  /** Speed of speech; always 1. */
  speed: number;
}

/** Complete effective configuration of a conversation with the model. */
export interface RealtimeSession {
  type: "realtime";
  object: "realtime.session";
  id: string;
  /** Latest end of the session in Unix seconds; absent for no limit. */
  expires_at?: number;
  /** Name of the loaded model. */
  model: string;
  output_modalities: Modality[];
  /** System message; empty for none. */
  instructions: string;
  tools: FunctionTool[];
  tool_choice: unknown;
  /** True if a response may contain more than one function call; absent for the default, true. */
  parallel_tool_calls?: boolean;
  max_output_tokens: MaxTokens;
  /** Not supported. */
  tracing: null;
  /** Not supported. */
  prompt: null;
  /** Not supported. */
  reasoning: null;
  truncation: unknown;
  /** Not supported. */
  include: null;
  audio: { input: AudioInput; output: AudioOutput };
  repartee?: SessionExtension;
}

// transcription_session.rs

/** Complete effective configuration of a session that transcribes the caller's turns, without responses. */
export interface TranscriptionSession {
  type: "transcription";
  object: "realtime.transcription_session";
  id: string;
  /** Latest end of the session in Unix seconds; absent for no limit. */
  expires_at?: number;
  audio: { input: AudioInput };
  /** Not supported. */
  include: null;
  repartee?: SessionExtension;
}

export type Session = RealtimeSession | TranscriptionSession;

// merge.rs

/**
 * Update of `Value`: an absent field keeps the old value, `null` resets it to its default, an object is merged field by field, any other
 * value replaces the old one. An object with another `type` replaces the old one entirely; its absent fields get their defaults.
 */
export type Patch<Value> = Value extends unknown[] | string | number | boolean | null
  ? Value | null
  : Value extends { type: infer Type }
    ? { type: Type } & { [Field in Exclude<keyof Value, "type">]?: Patch<Required<Value>[Field]> }
    : { [Field in keyof Value]?: Patch<Required<Value>[Field]> } | null;

/** Changes of a conversation's configuration. The id, the object type and the end belong to the server. */
export type SessionPatch = Patch<Omit<RealtimeSession, "id" | "object" | "expires_at">>;

// item.rs

export type ItemStatus = "in_progress" | "completed" | "incomplete";
export type ItemRole = "system" | "user" | "assistant";

/** Content part of a message. */
export type ItemContent =
  | { type: "input_text"; text: string }
  | {
      type: "input_audio";
      /** Base64 audio; set by clients only. */
      audio?: string;
      /** Transcript of the audio; the server always sends it, `null` unless transcribed. */
      transcript?: string | null;
    }
  | {
      type: "input_image";
      /** Data URI; set by clients only. */
      image_url?: string;
      detail?: "auto" | "low" | "high";
    }
  | { type: "output_text"; text: string }
  | {
      type: "output_audio";
      /** Transcript of the audio; the server always sends it. */
      transcript?: string | null;
    };

/** Message of one role. */
export interface Message {
  type: "message";
  id?: string | null;
  object?: "realtime.item" | null;
  status?: ItemStatus | null;
  role: ItemRole;
  content: ItemContent[];
}

/** Function call by the model. */
export interface FunctionCall {
  type: "function_call";
  id?: string | null;
  object?: "realtime.item" | null;
  status?: ItemStatus | null;
  /** Id of the call; its `function_call_output` repeats it. */
  call_id?: string | null;
  name: string;
  /** Arguments as JSON text. */
  arguments: string;
}

/** Result of a function call. */
export interface FunctionCallOutput {
  type: "function_call_output";
  id?: string | null;
  object?: "realtime.item" | null;
  status?: ItemStatus | null;
  call_id: string;
  /** Result as free text. */
  output: string;
}

/** Item of a conversation, as a client sends it. */
export type Item = Message | FunctionCall | FunctionCallOutput;

/** Fields that the server sends with every item. */
interface ItemHead {
  id: string;
  object: "realtime.item";
  status: ItemStatus;
}

/** Function call by the model, as the server sends it. */
export type ServerFunctionCall = FunctionCall & ItemHead & { call_id: string };

/** Item of a conversation, as the server sends it: with an id, and of a function call also the id of the call. */
export type ServerItem = (Message & ItemHead) | ServerFunctionCall | (FunctionCallOutput & ItemHead);

interface ItemRef {
  item_id: string;
}

interface ItemAdded {
  /** Id of the item before it; `null` for the first. */
  previous_item_id: string | null;
  /** Item in its current state. */
  item: ServerItem;
  /** Warnings about content that the model cannot read. */
  repartee?: EventExtension;
}

interface ItemTruncate extends ItemRef {
  /** Index of the content part; always 0. */
  content_index: number;
  /** Duration of audio to keep. */
  audio_end_ms: number;
}

// response.rs

export type ResponseStatus = "in_progress" | "completed" | "cancelled" | "incomplete" | "failed";

/** Reason of the end of a response. */
export interface StatusDetails {
  type: ResponseStatus;
  /** Reason of a cancelled or incomplete response. */
  reason?: "turn_detected" | "client_cancelled" | "max_output_tokens";
  /** Error of a failed response. */
  error?: { type: string; code: string | null; message: string };
}

/** Tokens used by a response. One codec frame counts as one audio token. */
export interface ResponseUsage {
  total_tokens: number;
  input_tokens: number;
  output_tokens: number;
  input_token_details: { text_tokens: number; audio_tokens: number; cached_tokens: number };
  output_token_details: { text_tokens: number; audio_tokens: number };
}

/** Response resource of the API. */
export interface RealtimeResponse {
  object: "realtime.response";
  id: string;
  status: ResponseStatus;
  /** Reason of the end; `null` while in progress. */
  status_details: StatusDetails | null;
  /** Output items; empty while in progress. */
  output: ServerItem[];
  /** Id of the conversation; `null` for an out-of-band response. */
  conversation_id: string | null;
  output_modalities: Modality[];
  max_output_tokens: MaxTokens;
  /** Effective audio settings. */
  audio: { output: { format: AudioFormat; voice: string } };
  /** Tokens used; `null` while in progress. */
  usage: ResponseUsage | null;
  /** Client metadata from `response.create`. */
  metadata: Record<string, unknown> | null;
}

/** Parameters of one response. Absent and `null` both select the session's value. */
export interface ResponseCreateParams {
  output_modalities?: Modality[] | null;
  instructions?: string | null;
  max_output_tokens?: MaxTokens | null;
  /** Conversation of the response: `none` for an out-of-band response, which adds no item. */
  conversation?: "auto" | "none" | null;
  /** Model input that replaces the conversation. */
  input?: (Item | { type: "item_reference"; id: string })[] | null;
  tools?: FunctionTool[] | null;
  tool_choice?: unknown;
  parallel_tool_calls?: boolean | null;
  metadata?: Record<string, unknown> | null;
  audio?: { output?: { voice?: string | { id: string } | null; format?: AudioFormat | null } | null } | null;
  /** Repartee's extension: true if the response speaks the text of `repartee.text.append` events. */
  repartee?: { reads?: boolean } | null;
}

interface ResponseEvent {
  /** Response in its current state. */
  response: RealtimeResponse;
  /** Warnings about settings that are served differently. */
  repartee?: EventExtension;
}

interface OutputItem {
  response_id: string;
  output_index: number;
  item: ServerItem;
}

/** Location of a content part. */
interface PartRef {
  response_id: string;
  item_id: string;
  output_index: number;
  /** Index of the part in the item; always 0. */
  content_index: number;
}

interface ContentPart extends PartRef {
  part: { type: "audio"; transcript: string } | { type: "text"; text: string };
}

interface ContentDelta extends PartRef {
  /** Next piece of the content; audio is base64. */
  delta: string;
}

/** Location of a function call. */
interface CallRef {
  response_id: string;
  item_id: string;
  output_index: number;
  call_id: string;
}

// input_audio.rs: offsets are in ms of audio received since the session started.

interface SpeechStarted extends ItemRef {
  /** Start of the turn's audio, prefix padding included. */
  audio_start_ms: number;
}

interface SpeechStopped extends ItemRef {
  /** End of the turn's audio. */
  audio_end_ms: number;
}

// transcription.rs

interface TranscriptRef extends ItemRef {
  /** Index of the content part; always 0. */
  content_index: number;
}

/** Tokens used by a transcript. */
export interface TranscriptionUsage {
  type: "tokens";
  total_tokens: number;
  input_tokens: number;
  input_token_details: { text_tokens: number; audio_tokens: number };
  output_tokens: number;
}

// rate_limits.rs

/** Rate limit of the client. */
export interface RateLimit {
  name: string;
  limit: number;
  remaining: number;
  reset_seconds: number;
}

// client.rs

/** Payload of each client event, by its type. */
export interface ClientEvents {
  "session.update": { session: SessionPatch };
  "input_audio_buffer.append": { audio: string };
  "input_audio_buffer.commit": {};
  "input_audio_buffer.clear": {};
  "output_audio_buffer.clear": {};
  "conversation.item.create": {
    /** Id of the item to insert after; absent for the end, `root` for the beginning. */
    previous_item_id?: string;
    item: Item;
  };
  "conversation.item.delete": ItemRef;
  "conversation.item.retrieve": ItemRef;
  "conversation.item.truncate": ItemTruncate;
  "response.create": { response?: ResponseCreateParams };
  "response.cancel": { response_id?: string };
  "repartee.text.append": { response_id?: string; text: string };
  "repartee.text.done": { response_id?: string };
}

/** A client event; `event_id` is optional. */
export type ClientEvent = { [Type in keyof ClientEvents]: { type: Type; event_id?: string } & ClientEvents[Type] }[keyof ClientEvents];

// server.rs

/** Payload of each server event, by its type. */
export interface ServerEvents {
  error: { error: ErrorBody };
  "session.created": { session: Session };
  "session.updated": { session: Session };
  "input_audio_buffer.speech_started": SpeechStarted;
  "input_audio_buffer.speech_stopped": SpeechStopped;
  "input_audio_buffer.committed": { previous_item_id: string | null; item_id: string };
  "input_audio_buffer.cleared": {};
  "input_audio_buffer.timeout_triggered": SpeechStarted & SpeechStopped;
  "input_audio_buffer.dtmf_event_received": { event: string; received_at: number };
  "conversation.item.added": ItemAdded;
  "conversation.item.done": ItemAdded;
  "conversation.item.deleted": ItemRef;
  "conversation.item.retrieved": { item: ServerItem };
  "conversation.item.truncated": ItemTruncate & { repartee?: EventExtension };
  "conversation.item.input_audio_transcription.delta": TranscriptRef & { delta: string };
  "conversation.item.input_audio_transcription.completed": TranscriptRef & { transcript: string; usage: TranscriptionUsage };
  "conversation.item.input_audio_transcription.failed": TranscriptRef & { error: ErrorBody };
  "response.created": ResponseEvent;
  "response.output_item.added": OutputItem;
  "response.output_item.done": OutputItem;
  "response.content_part.added": ContentPart;
  "response.content_part.done": ContentPart;
  "response.output_audio.delta": ContentDelta;
  "response.output_audio.done": PartRef;
  "response.output_audio_transcript.delta": ContentDelta;
  "response.output_audio_transcript.done": PartRef & { transcript: string };
  "response.output_text.delta": ContentDelta;
  "response.output_text.done": PartRef & { text: string };
  "response.function_call_arguments.delta": CallRef & { delta: string };
  "response.function_call_arguments.done": CallRef & { name: string; arguments: string };
  "response.done": ResponseEvent;
  "output_audio_buffer.started": { response_id: string };
  "output_audio_buffer.stopped": { response_id: string };
  "output_audio_buffer.cleared": { response_id: string };
  "rate_limits.updated": { rate_limits: RateLimit[] };
  "repartee.decision": DecisionMade;
}

/** A server event of one type, or of any. */
export type ServerEvent<Wanted extends keyof ServerEvents = keyof ServerEvents> = {
  [Type in Wanted]: {
    /** Id of the event, unique within the session. */
    event_id: string;
    type: Type;
  } & ServerEvents[Type];
}[Wanted];
