//! Rate of right answers to the frozen questions, compared with the model card.
//!
//! A single wrong answer does not fail a test; too many do. The bound is binomial at the card's rate: a model that is
//! as good as its card fails a bound with a probability of at most [`FALSE_ALARM`], if the questions are as hard as the
//! card's.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::questions::{self, Question};
use crate::{asr, binomial, model_card};

/// False-alarm probability of each bound.
pub const FALSE_ALARM: f64 = 0.001;

/// An answer to a question, as the client received it.
#[derive(Debug)]
pub struct AskedAnswer<'a> {
    /// The question asked.
    pub question: &'a Question,
    /// Transcript of the answer, received by the client.
    pub transcript: &'a str,
    /// Sound of the answer, recorded by the client.
    pub recording: PathBuf,
}

/// Transcribes the recordings, judges all answers and prints them with the rates. Fails if a rate is below the bound of
/// the model card.
pub async fn check_rates(answers: &[AskedAnswer<'_>]) -> Result<()> {
    let recordings: Vec<_> = answers.iter().map(|answer| answer.recording.clone()).collect();
    let heard = asr::transcribe(&recordings).await?;
    let written: Vec<_> = answers.iter().map(|answer| (answer.question, answer.transcript)).collect();
    let spoken: Vec<_> = answers.iter().zip(&heard).map(|(answer, heard)| (answer.question, heard.as_str())).collect();
    let (written, spoken) = (questions::judge(&written).await?, questions::judge(&spoken).await?);
    for (((answer, heard), written), spoken) in answers.iter().zip(&heard).zip(&written).zip(&spoken) {
        let verdict = |right: &bool| if *right { "right" } else { "wrong" };
        let AskedAnswer { question, transcript, .. } = answer;
        println!("{} -> {transcript} ({}) | heard: {heard} ({})", question.text, verdict(written), verdict(spoken));
    }
    let count = |rights: &[bool], in_domain: bool| {
        let chosen = answers.iter().zip(rights).filter(|(answer, _)| answer.question.is_in_domain() == in_domain);
        let rights: Vec<_> = chosen.map(|(_, right)| *right).collect();
        (rights.iter().filter(|right| **right).count(), rights.len())
    };
    let bounds = [
        bound("answer right, clean, in the transcript", count(&written, true)),
        bound("answer right, clean, as heard", count(&spoken, true)),
        bound("outside the domain, met with \"I don't know\", in the transcript", count(&written, false)),
        bound("outside the domain, met with \"I don't know\", as heard", count(&spoken, false)),
    ];
    // All bounds are printed before one fails.
    bounds.into_iter().collect()
}

fn bound(measure: &str, (right, of): (usize, usize)) -> Result<()> {
    let claimed = model_card::share(measure)?;
    let least = binomial::lower_bound(u32::try_from(of)?, claimed, FALSE_ALARM);
    let verdict = format!("{measure}: {right} of {of}; the card says {:.1} %, so {least} at least", claimed * 100.0);
    println!("{verdict}");
    ensure!(right >= least as usize, "{verdict}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_right_answers_are_refused() {
        let measure = "answer right, clean, in the transcript";
        let least = binomial::lower_bound(38, model_card::share(measure).unwrap(), FALSE_ALARM) as usize;
        assert!((1..38).contains(&least), "{least}");
        bound(measure, (least, 38)).unwrap();
        let refused = bound(measure, (least - 1, 38)).unwrap_err().to_string();
        assert!(refused.contains(&format!("{} of 38", least - 1)), "{refused}");
        bound("no such measure", (38, 38)).unwrap_err();
    }
}
