//! The thinker's loss on written answers.

use repartee_engine::WeightPolicy;
use repartee_engine::internals::qwen3_omni_moe::Qwen3Omni;
use repartee_engine::internals::{Checkpoint, Tokenizer};
use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;

use crate::Question;
use repartee_engine_testkit::eager::{batch, index};

pub struct Loss {
    /// Mean over the tokens of all answers, their ends included.
    pub loss: f64,
    /// Likeliest id at each token.
    pub likeliest: Vec<usize>,
}

pub fn measure(checkpoint: &Checkpoint, policy: WeightPolicy, questions: &[Question]) -> Loss {
    let ops = Cpu::default();
    let model = Qwen3Omni::load_as(&ops, checkpoint, policy).unwrap();
    let config = &model.config;
    let tokenizer = Tokenizer::load(checkpoint, config.thinker.text.model.vocab_size).unwrap();
    let newline = tokenizer.encode("\n").unwrap();
    let (mut sum, mut likeliest) = (0.0, Vec::new());
    for question in questions {
        let (asked, answer) = (tokenizer.encode(&question.text).unwrap(), tokenizer.encode(&question.answer).unwrap());
        let header = |role| [&[config.im_start_token_id, role][..], &newline].concat();
        let prompt = [header(config.user_token_id), asked, vec![config.im_end_token_id], newline.clone()].concat();
        let prompt = [prompt, header(config.assistant_token_id)].concat();
        let ids = [&prompt[..], &answer, &[config.im_end_token_id]].concat();
        let mut cache = model.thinker.model.cache(&ops, 1, ids.len());
        let tokens = index(&ops, &ids);
        let x = model.thinker.embed(&ops, &tokens, None);
        let (out, _) = model.thinker.forward(&ops, x, &tokens, &mut cache, &batch(&ops, 0, ids.len()));
        let before: Vec<u32> = (prompt.len() as u32 - 1..ids.len() as u32 - 1).collect();
        let logits = ops.read(&model.thinker.logits(&ops, &out, &index(&ops, &before)));
        for (row, &next) in logits.chunks_exact(config.thinker.text.model.vocab_size).zip(&ids[prompt.len()..]) {
            let most = row.iter().fold(f32::NEG_INFINITY, |most, &logit| most.max(logit));
            let all: f64 = row.iter().map(|&logit| f64::from(logit - most).exp()).sum();
            sum += all.ln() - f64::from(row[next as usize] - most);
            likeliest.push(row.iter().position(|&logit| logit == most).unwrap());
        }
    }
    Loss { loss: sum / likeliest.len() as f64, likeliest }
}
