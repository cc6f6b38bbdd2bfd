//! `make bench-turns`: endpointing by fixed silence and by turn-detection models, on the frozen turns of `tests/turns`.
//!
//! | file | contents |
//! |---|---|
//! | `set` | the frozen turns: recordings, ends of voices, pauses and their kinds |
//! | `policy` | our policies, driven as a call drives them |
//! | `peers` | Silero's detector, and smart-turn as Pipecat uses it, run by `tests/turns/peers.py` |
//! | `measured` | false ends by kind and duration of the pause, delays, rows of the report |
//!
//! A false end is a turn that ends in a pause after which the speaker continues; the delay is the time from the end of
//! the voice to the end of the turn. Pauses are room tone of the recording. Time is the audio's own clock.
//!
//! Our own use of smart-turn takes minutes, so it is measured with the environment variable `SMART_TURN` alone.

mod measured;
mod peers;
mod policy;
mod set;

use anyhow::Result;
use repartee_media::endpointing::PauseModel;
use repartee_report::Report;
use repartee_tests::tools;

use self::measured::Measured;
use self::policy::{Judges, POLICIES};
use self::set::TurnSet;

fn main() -> Result<()> {
    let set = TurnSet::load()?;
    println!("{set}");
    let mut judges = Judges::default();
    let mut results = Vec::new();
    let slow = std::env::var_os("SMART_TURN").is_some();
    for policy in POLICIES.iter().filter(|policy| slow || policy.model != Some(PauseModel::SmartTurn)) {
        let mut measured = Measured::new(policy.name, policy.silence_ms.is_some());
        for sound in &set.sounds {
            measured.add(sound, &policy.ends(sound, &mut judges)?);
        }
        println!("{measured}");
        results.push(measured);
    }
    for (name, is_silence, ends) in peers::ends(&set)? {
        let mut measured = Measured::new(&name, is_silence);
        for (sound, ends) in set.sounds.iter().zip(&ends) {
            measured.add(sound, ends);
        }
        println!("{measured}");
        results.push(measured);
    }
    let mut rows: Vec<_> = results.iter().flat_map(|measured| measured.rows(&results)).collect();
    rows.extend(judges.rows());
    let path = tools::root().join("target/report/turns.json");
    Report::new("turns", rows).write(&path)?;
    println!("\n{}", path.display());
    Ok(())
}
