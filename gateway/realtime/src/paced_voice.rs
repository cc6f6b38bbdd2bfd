//! Voice that speaks at a speed: the model's own where it has one, and the rest by [`Tempo`](repartee_media::tempo::Tempo).

use repartee_media::tempo::SPEEDS;

/// Voice and the change of its speed.
#[derive(Debug, Clone, PartialEq)]
pub struct PacedVoice {
    /// Voice of the model; its own speed may stand in its name, as in `NAME/1.5`.
    pub voice: String,
    /// Speed of that voice.
    pub own: f64,
    /// Change of the speed that is left, within [`SPEEDS`].
    pub tempo: f64,
}

impl PacedVoice {
    /// Finds the voice that speaks as `name` at a speed nearest to `speed`.
    pub fn find(name: &str, speed: f64, voices: &[String]) -> Self {
        if speed == 1.0 {
            return Self { voice: name.to_owned(), own: 1.0, tempo: 1.0 };
        }
        let number = |end: &str| end.parse::<f64>().ok().filter(|own| *own > 0.0 && own.is_finite());
        let alone = name.rsplit_once('/').filter(|(_, end)| number(end).is_some()).map_or(name, |(alone, _)| alone);
        let paced = voices.iter().filter_map(|voice| {
            let own = number(voice.strip_prefix(alone)?.strip_prefix('/')?)?;
            Some((voice.as_str(), own))
        });
        let distance = |own: f64| (own / speed).ln().abs();
        let nearest = paced.chain([(alone, 1.0)]).min_by(|(_, a), (_, b)| distance(*a).total_cmp(&distance(*b)));
        let (voice, own) = nearest.unwrap_or((alone, 1.0));
        let left = speed / own;
        let tempo = if (left - 1.0).abs() < 1e-6 { 1.0 } else { left.clamp(*SPEEDS.start(), *SPEEDS.end()) };
        Self { voice: voice.to_owned(), own, tempo }
    }

    /// Speed at which the voice is heard.
    pub fn speed(&self) -> f64 {
        self.own * self.tempo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_own_speeds_are_preferred() {
        let voices = ["bob", "ada", "bob/0.8", "bob/1.5", "ada/2.0", "bob/house"].map(str::to_owned);
        let find = |name: &str, speed: f64| {
            let PacedVoice { voice, tempo, .. } = PacedVoice::find(name, speed, &voices);
            (voice, (tempo * 1_000.0).round() / 1_000.0)
        };
        assert_eq!(find("bob", 1.5), ("bob/1.5".to_owned(), 1.0));
        assert_eq!(find("bob", 1.0), ("bob".to_owned(), 1.0));
        assert_eq!(find("bob", 1.2), ("bob".to_owned(), 1.2));
        assert_eq!(find("bob/0.8", 1.8), ("bob/1.5".to_owned(), 1.2));
        assert_eq!(find("ada", 4.0), ("ada/2.0".to_owned(), 2.0));
        assert_eq!(PacedVoice::find("eve", 9.0, &voices).speed(), 2.0, "no more than twice");
    }
}
