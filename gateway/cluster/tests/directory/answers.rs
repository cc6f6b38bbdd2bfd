//! Waiting for the answer of another node.

use std::time::{Duration, Instant};

use repartee_cluster::Patience;

const MS: Duration = Duration::from_millis(1);

/// Times after the request at which a node that lives is asked whether it does, and the last one, when it is left.
fn asked(method: &str, path: &str) -> Vec<Duration> {
    let begun = Instant::now();
    let (mut now, mut patience) = (begun, Patience::new(method, path, begun));
    let mut times = Vec::new();
    while let Some(wait) = patience.next_wait(now) {
        now += wait;
        times.push(now - begun);
    }
    times
}

#[test]
fn answers_are_doubted_at_once() {
    let times = asked("POST", "/v1/realtime/calls");
    assert_eq!(times[..3], [150 * MS, 1_150 * MS, 2_150 * MS]);
    assert_eq!(times.last(), Some(&(10_000 * MS)));
}

#[test]
fn enrolments_are_waited_for() {
    assert_eq!(asked("POST", "/v1/audio/voices").last(), Some(&(300_000 * MS)));
    for (method, path) in [
        ("GET", "/v1/audio/voices"),
        ("POST", "/v1/audio/voice_consents/cons_1"),
        ("DELETE", "/v1/audio/voices/voice_1"),
    ] {
        assert_eq!(asked(method, path).last(), Some(&(10_000 * MS)), "{method} {path}");
    }
}
