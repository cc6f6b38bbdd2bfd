//! `repartee check PATH`: the summary of a checkpoint, without its weights.

use std::fmt;

use repartee_engine::summary::CheckpointSummary;

use super::output::format_bytes;

/// Columns before the values.
const LABEL: usize = 14;

/// Summary of a checkpoint, as lines for a terminal.
#[derive(Debug)]
pub struct SummaryLines<'a>(pub &'a CheckpointSummary);

impl fmt::Display for SummaryLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CheckpointSummary { form, architecture, stacks, tensors, tokenizer, template, memory, served } = self.0;
        let mut line = |label: &str, value: &str| writeln!(f, "{label:LABEL$}{value}");
        line("form", form)?;
        line("architecture", architecture.as_deref().unwrap_or("not named"))?;
        for (i, stack) in stacks.iter().enumerate() {
            line(if i == 0 { "sizes" } else { "" }, stack)?;
        }
        let (count, bytes) = tensors.iter().fold((0, 0), |(count, bytes), one| (count + one.count, bytes + one.bytes));
        let formats = tensors.iter().map(|one| format!("{} {} ({})", one.count, one.format, format_bytes(one.bytes)));
        let formats = formats.collect::<Vec<_>>().join(", ");
        line("tensors", &format!("{count} of {}: {formats}", format_bytes(bytes)))?;
        line("tokenizer", tokenizer.as_deref().unwrap_or("none"))?;
        line("template", template.as_deref().unwrap_or("none"))?;
        line("memory", &format!("about {} for weights, at engine.weights = bf16", format_bytes(*memory)))?;
        match served {
            Ok(family) => line("served", &format!("yes, as {family}")),
            Err(reason) => line("served", &format!("no: {reason}")),
        }
    }
}
