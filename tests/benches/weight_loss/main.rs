//! `make weight-loss`: quality loss from integer weights, into `target/report/weight_loss.json`. For each value of
//! `engine.weights`, on the demo checkpoint:
//! - bytes of the matrices, and the error of each kind: root mean square of (quantised number - checkpoint's number),
//!   over the root mean square of the checkpoint's numbers; the worst tensor by name
//! - the thinker's loss, in nats per token, on the right answers to the frozen questions (`tests/questions`) as text;
//!   and the number of tokens whose likeliest id is that of bf16
//! - of the same questions, asked in recorded voices, the number answered with all key words of the right answer, and
//!   with the same text as with bf16. Greedy, without sound. The same with keys and values in bf16 (`engine.kv_cache`).
#![allow(clippy::unwrap_used)] // A panic is this benchmark's report.

mod answers;
mod loss;
mod tensors;

use repartee_engine::internals::Checkpoint;
use repartee_engine::{KvCacheFormat, Source, WeightPolicy};
use repartee_report::ReportRow;
use repartee_tests::side_by_side;
use repartee_tests::tools::root;
use serde::Deserialize;

/// A frozen question.
#[derive(Deserialize)]
struct Question {
    file: String,
    text: String,
    answer: String,
    key: Vec<String>,
}

fn demo() -> Source {
    Source::Folder(root().join("models/demo"))
}

fn main() {
    let list = std::fs::read_to_string(root().join("tests/questions/questions.json")).unwrap();
    let questions: Vec<Question> = serde_json::from_str(&list).unwrap();
    let checkpoint = Checkpoint::open(demo()).unwrap();
    let base = loss::measure(&checkpoint, WeightPolicy::Bf16, &questions);
    let said = answers::all(WeightPolicy::Bf16, KvCacheFormat::F32, &questions);
    let mut rows = Vec::new();
    for policy in WeightPolicy::ALL {
        let name = serde_json::to_value(policy).unwrap().as_str().unwrap().to_owned();
        rows.extend(tensors::rows(&checkpoint, policy, &name));
        let found = loss::measure(&checkpoint, policy, &questions);
        let same = found.likeliest.iter().zip(&base.likeliest).filter(|(a, b)| a == b).count();
        let note = format!("on right answers; peer: bf16; its likeliest token: {same} of {}", found.likeliest.len());
        rows.push(ReportRow::lower_is_better(format!("loss_{name}"), found.loss, base.loss, "nats a token", note));
        for kv_cache in [KvCacheFormat::F32, KvCacheFormat::Bf16] {
            let answers = answers::all(policy, kv_cache, &questions);
            let answered = answers.iter().zip(&questions).filter(|(answer, question)| question.is_answered_by(answer));
            let (right, same) = (answered.count(), answers.iter().zip(&said).filter(|(a, b)| a == b).count());
            let keys = serde_json::to_value(kv_cache).unwrap().as_str().unwrap().to_owned();
            let note = format!("of {} with all key words; {same} with the text of bf16", questions.len());
            rows.push(ReportRow::without_peer(format!("answers_{name}_kv_{keys}"), right as f64, "answers", note));
        }
    }
    side_by_side::finish("weight_loss", rows).unwrap();
}

impl Question {
    fn is_answered_by(&self, answer: &str) -> bool {
        let words: Vec<String> =
            answer.split(|letter: char| !letter.is_alphanumeric() && letter != '\'').map(str::to_lowercase).collect();
        self.key.iter().all(|key| words.contains(&key.to_lowercase()))
    }
}
