//! Table of the attacks: what each row promises, and the shortfalls that are known.

/// A row: attacks at once, and the promise of the server.
#[derive(Debug, Clone, Copy)]
pub struct HostileRow {
    /// Name of the row in the report.
    pub name: &'static str,
    /// Attacks that run at once; empty for all.
    pub attacks: &'static [&'static str],
    /// Promise that the row asserts besides the aims of all rows.
    pub promise: &'static str,
    /// Reason why the row does not hold yet; it is printed, and does not fail.
    pub shortfall: Option<&'static str>,
}

const fn row(name: &'static str, attacks: &'static [&'static str], promise: &'static str) -> HostileRow {
    HostileRow { name, attacks, promise, shortfall: None }
}

/// Row with a known shortfall.
const fn short(
    name: &'static str,
    attacks: &'static [&'static str],
    promise: &'static str,
    reason: &'static str,
) -> HostileRow {
    HostileRow { shortfall: Some(reason), ..row(name, attacks, promise) }
}

/// Processors that the gateway's threads share with the engine's.
const PROCESSORS: &str = "all requests together take the processors from the engine";

/// Rows of the whole run, one for each kind of attack, then all at once.
pub const ALL: [HostileRow; 30] = [
    row("empty-parts", &["empty-parts"], "an item is charged what its parts take in memory"),
    row("json-bombs", &["json-bombs"], "unknown fields take no memory, and large bodies are read one by one"),
    row("quadratic-parts", &["quadratic-parts"], "parts of text are joined in linear time, and not after a hang-up"),
    row("large-updates", &["large-updates"], "large events are parsed apart from other calls"),
    row("large-appends", &["large-appends"], "audio that came at once is decoded and encoded after everybody else's"),
    row("many-messages", &["large-appends"; 4], "large messages of many connections share one budget of bytes"),
    row("tiny-frames", &["tiny-frames"], "a client whose bytes are always there lets others run"),
    row("tiny-events", &["tiny-events"], "events that each cost an answer let others run"),
    row("unread-pongs", &["unread-pongs"], "a flood of pings ends the connection"),
    row("unread-output", &["unread-output"], "events that a client does not read are bounded in bytes"),
    row("slow-heads", &["slow-heads"], "requests have time limits, and silent connections leave health checks"),
    row("slow-bodies", &["slow-bodies"], "bodies on their way share one budget of memory"),
    row("chunk-bombs", &["chunk-bombs"], "a chunk of one byte takes the memory of one byte"),
    row("client-secrets", &["client-secrets"], "one key takes no more than its share of ephemeral keys"),
    row("descriptors", &["descriptors"], "spare descriptors answer health checks"),
    row("long-prompts", &["long-prompts"], "no frame that is due waits for a prefill"),
    row("short-prompts", &["short-prompts"], "many short prompts take turns with others"),
    row("speech", &["speech"], "texts read aloud take turns with calls"),
    row("text-answers", &["text-answers"], "answers in text take turns with spoken ones"),
    row("schemas", &["schemas"], "forms of answers are read within bounds, apart from calls"),
    row("media-streams", &["media-streams"], "telephone calls of one peer begin and break without a trace"),
    row("sip-flood", &["sip-flood"], "calls, probes, malformed messages and sound of one telephone delay nobody"),
    row("sip-streams", &["sip-streams"], "connections of one telephone are few, and none waits for another's message"),
    row("sdp-bombs", &["sdp-bombs"], "formats, attributes, candidates and sections of an offer are bounded"),
    row("offer-flood", &["offer-flood"], "offers that nobody connects end, and give their memory back"),
    row("rtp-flood", &["rtp-flood"], "datagrams of strangers are dropped before any work"),
    row("channel-events", &["channel-events"], "events over a data channel, each with an answer, let others run"),
    row("rtp-rush", &["rtp-rush"], "sound of a call that comes faster than time is dropped"),
    row("wrong-keys", &["wrong-keys"], "wrong keys take no work from others"),
    short("all-at-once", &[], "all of this at once, for a minute, in 2 GiB", PROCESSORS),
];

/// Rows of the quick run: a few kinds at once.
pub const QUICK: [HostileRow; 2] = [
    row(
        "quick-connections",
        &["slow-heads", "descriptors", "unread-pongs", "wrong-keys", "sdp-bombs"],
        "connections, pings, keys and offers of one tenant delay nobody",
    ),
    row(
        "quick-work",
        &["short-prompts", "client-secrets", "text-answers"],
        "prompts, answers and keys of one tenant delay nobody",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hostile::attack::names;

    #[test]
    fn every_attack_has_a_row() {
        let known: BTreeSet<&str> = names().collect();
        let single: BTreeSet<&str> = ALL.iter().flat_map(|row| row.attacks).copied().collect();
        assert_eq!(single, known);
        assert!(QUICK.iter().flat_map(|row| row.attacks).all(|name| known.contains(name)));
        assert!(ALL.iter().chain(&QUICK).all(|row| row.shortfall.is_none_or(|reason| !reason.is_empty())));
    }
}
