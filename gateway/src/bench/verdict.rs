//! Verdict of a measured turn, for a person.

use std::time::Duration;

/// Share of the machine that callers may use; the rest keeps frames in time when several answers begin at once.
const USABLE: f64 = 0.8;

/// Times of a measured turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnSpeed {
    /// Duration of the caller's turn; 0 for a model without audio input.
    pub heard: Duration,
    /// Computation while the caller speaks.
    pub listening: Duration,
    /// Time from the end of the turn to the first sound.
    pub first_sound: Duration,
    /// Time to generate the answer.
    pub response: Duration,
    /// Duration of the answer's sound; 0 for a model without audio output.
    pub sound: Duration,
    /// True if integers of four bits would read less than these weights.
    pub wide: bool,
}

/// Says how fast the turn was, and for about how many callers that is enough; `None` without sound.
pub(super) fn verdict(turn: TurnSpeed) -> Option<String> {
    let [heard, listening, response, sound] =
        [turn.heard, turn.listening, turn.response, turn.sound].map(|duration| duration.as_secs_f64());
    if sound == 0.0 || response == 0.0 {
        return None;
    }
    let speed = sound / response;
    // Callers listen and speak in turn; a turn of each is what one of them costs.
    let load = (listening + response) / (heard + sound);
    let callers = (USABLE / load) as u64;
    let ms = turn.first_sound.as_millis();
    let remedy = if turn.wide {
        "try --set engine.weights=int4, more cores, a GPU or a smaller model"
    } else {
        "try more cores, a GPU or a smaller model"
    };
    Some(match (speed, callers) {
        (..1.0, _) => format!("Too slow: {speed:.2} times as fast as speech, so answers break off. Remedy: {remedy}."),
        (_, 0) => format!(
            "{speed:.1} times as fast as speech, first sound after {ms} ms: just enough for one caller. For more, {remedy}."
        ),
        _ => format!(
            "{speed:.1} times as fast as speech, first sound after {ms} ms: about {callers} caller{} at once, \
             who speak and listen in turn. Steps that they share allow more: see `repartee bench size --sessions`.",
            if callers == 1 { "" } else { "s" }
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(listening_ms: u64, response_ms: u64) -> TurnSpeed {
        let ms = Duration::from_millis;
        let (heard, sound) = (ms(5_000), ms(5_000));
        TurnSpeed {
            heard,
            listening: ms(listening_ms),
            first_sound: ms(85),
            response: ms(response_ms),
            sound,
            wide: true,
        }
    }

    #[test]
    fn verdict_names_speed_and_callers() {
        let verdict = |listening, response| verdict(turn(listening, response)).unwrap();
        assert!(
            verdict(100, 500).starts_with("10.0 times as fast as speech, first sound after 85 ms: about 13 callers at")
        );
        assert!(
            verdict(1_000, 4_500).contains("1.1 times as fast as speech, first sound after 85 ms: about 1 caller at")
        );
        assert!(verdict(5_000, 4_500).contains("just enough for one caller"));
        assert!(verdict(100, 10_000).starts_with("Too slow: 0.50 times"));
    }

    #[test]
    fn remedy_is_not_what_is_set() {
        let remedy = |wide| verdict(TurnSpeed { wide, ..turn(100, 10_000) }).unwrap().contains("engine.weights=int4");
        assert!(remedy(true) && !remedy(false));
    }

    #[test]
    fn silent_model_has_no_verdict() {
        assert_eq!(verdict(TurnSpeed { sound: Duration::ZERO, ..turn(1, 1) }), None);
    }
}
