//! Metrics of API keys, by name.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{CounterVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::usage::UsageTotals;

/// Use of the server by one key, or by several keys of one name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyUsage {
    /// Calls that are running, of all transports.
    pub sessions: i64,
    /// Valid ephemeral keys.
    pub ephemeral: i64,
    /// Computed prompt tokens.
    pub prefill: u64,
    /// Tokens that the first stage generated.
    pub decode: u64,
    /// Tokens and sound.
    pub totals: UsageTotals,
    /// Refusals by each limit.
    pub refused: Vec<(&'static str, u64)>,
}

/// Metrics of API keys.
#[derive(Debug, Clone)]
pub(super) struct KeyMetrics {
    sessions: IntGaugeVec,
    ephemeral: IntGaugeVec,
    prefill: IntCounterVec,
    decode: IntCounterVec,
    responses: IntCounterVec,
    input_tokens: IntCounterVec,
    cached_tokens: IntCounterVec,
    output_tokens: IntCounterVec,
    sound: CounterVec,
    answer_sound: CounterVec,
    refused: IntCounterVec,
    /// Names that are shown, and the names of their limits.
    shown: Arc<Mutex<BTreeSet<(String, &'static str)>>>,
}

impl KeyMetrics {
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let by_key = &["key"];
        let metrics = Self {
            sessions: IntGaugeVec::new(Opts::new("repartee_key_sessions", "Running calls, by API key"), by_key)?,
            ephemeral: IntGaugeVec::new(
                Opts::new("repartee_key_ephemeral_keys", "Valid ephemeral keys, by the API key that issued them"),
                by_key,
            )?,
            prefill: IntCounterVec::new(
                Opts::new("repartee_key_prefill_tokens_total", "Computed prompt tokens, by API key"),
                by_key,
            )?,
            decode: IntCounterVec::new(
                Opts::new("repartee_key_decode_tokens_total", "Generated tokens, by API key"),
                by_key,
            )?,
            responses: IntCounterVec::new(
                Opts::new("repartee_key_responses_total", "Responses and transcripts, by API key"),
                by_key,
            )?,
            input_tokens: IntCounterVec::new(
                Opts::new("repartee_key_input_tokens_total", "Prompt tokens of responses, by API key and kind"),
                &["key", "kind"],
            )?,
            cached_tokens: IntCounterVec::new(
                Opts::new("repartee_key_cached_tokens_total", "Prompt tokens that were cached, by API key"),
                by_key,
            )?,
            output_tokens: IntCounterVec::new(
                Opts::new("repartee_key_output_tokens_total", "Tokens of responses, by API key and kind"),
                &["key", "kind"],
            )?,
            sound: CounterVec::new(
                Opts::new("repartee_key_sound_seconds_total", "Input sound of callers, by API key"),
                by_key,
            )?,
            answer_sound: CounterVec::new(
                Opts::new("repartee_key_answer_seconds_total", "Generated sound, by API key"),
                by_key,
            )?,
            refused: IntCounterVec::new(
                Opts::new("repartee_key_refused_total", "Refusals by a limit of an API key"),
                &["key", "limit"],
            )?,
            shown: Arc::default(),
        };
        registry.register(Box::new(metrics.sessions.clone()))?;
        registry.register(Box::new(metrics.ephemeral.clone()))?;
        registry.register(Box::new(metrics.prefill.clone()))?;
        registry.register(Box::new(metrics.decode.clone()))?;
        let counters = [&metrics.responses, &metrics.input_tokens, &metrics.cached_tokens, &metrics.output_tokens];
        for counter in counters {
            registry.register(Box::new(counter.clone()))?;
        }
        registry.register(Box::new(metrics.sound.clone()))?;
        registry.register(Box::new(metrics.answer_sound.clone()))?;
        registry.register(Box::new(metrics.refused.clone()))?;
        Ok(metrics)
    }

    /// Sets the totals of all keys; keys that are no more are no longer shown.
    pub fn set<'a>(&self, keys: impl IntoIterator<Item = (&'a str, KeyUsage)>) {
        let raise = |counter: &IntCounter, total: u64| counter.inc_by(total.saturating_sub(counter.get()));
        let mut now = BTreeSet::new();
        // Held throughout, so that two scrapes do not count twice.
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, usage) in keys {
            let label = &[name];
            self.sessions.with_label_values(label).set(usage.sessions);
            self.ephemeral.with_label_values(label).set(usage.ephemeral);
            raise(&self.prefill.with_label_values(label), usage.prefill);
            raise(&self.decode.with_label_values(label), usage.decode);
            let totals = usage.totals;
            raise(&self.responses.with_label_values(label), totals.requests);
            raise(&self.cached_tokens.with_label_values(label), totals.input_cached_tokens);
            let tokens = [
                (&self.input_tokens, totals.input_text_tokens, totals.input_audio_tokens),
                (&self.output_tokens, totals.output_text_tokens, totals.output_audio_tokens),
            ];
            for (counter, text, audio) in tokens {
                raise(&counter.with_label_values(&[name, "text"]), text);
                raise(&counter.with_label_values(&[name, "audio"]), audio);
            }
            for (counter, total_us) in
                [(&self.sound, totals.input_sound_us), (&self.answer_sound, totals.output_sound_us)]
            {
                let counter = counter.with_label_values(label);
                counter.inc_by((total_us as f64 / 1e6 - counter.get()).max(0.0));
            }
            for (limit, total) in usage.refused {
                raise(&self.refused.with_label_values(&[name, limit]), total);
                now.insert((name.to_owned(), limit));
            }
        }
        for (name, limit) in shown.difference(&now) {
            // What is removed twice is gone.
            let _ = self.refused.remove_label_values(&[name.as_str(), limit]);
            if now.iter().all(|(other, _)| other != name) {
                let label = &[name.as_str()];
                let _ = self.sessions.remove_label_values(label);
                let _ = self.ephemeral.remove_label_values(label);
                let _ = self.prefill.remove_label_values(label);
                let _ = self.decode.remove_label_values(label);
                for counter in [&self.responses, &self.cached_tokens] {
                    let _ = counter.remove_label_values(label);
                }
                for kind in ["text", "audio"] {
                    let _ = self.input_tokens.remove_label_values(&[name, kind]);
                    let _ = self.output_tokens.remove_label_values(&[name, kind]);
                }
                let _ = self.sound.remove_label_values(label);
                let _ = self.answer_sound.remove_label_values(label);
            }
        }
        *shown = now;
    }
}
