//! The HTTP server: keys, limits, budgets, refusals, health, certificates, proxies, chat completions, speech, voices, transcripts, cascades.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod budgets;
mod bytes;
mod cascade;
mod chat;
mod handshake;
mod health;
mod held_answers;
mod keyless;
mod keys;
mod limits;
mod offers;
mod peers;
mod proxy;
mod recorded_voices;
mod refusals;
mod speech;
mod thinker;
mod tls;
mod transcription;
mod usage;
mod voices;
