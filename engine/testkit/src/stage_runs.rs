//! A stage that is run alone, without the scheduler.

use repartee_engine::internals::{BatchEntry, Outbox, Stage, StageItem};

/// Runs a stage of slot 1 over items, each given once the stage has nothing to do; returns what it gives.
pub fn run_stage(stage: &mut dyn Stage, items: impl IntoIterator<Item = StageItem>) -> Vec<StageItem> {
    let mut out = Outbox::new();
    for item in items {
        stage.accept(1, item, &mut out);
        loop {
            let rows = stage.runnable_rows(1).rows.min(stage.max_rows());
            if rows == 0 {
                break;
            }
            stage.launch(&[BatchEntry { slot: 1, rows }], &mut out);
            stage.collect(&mut out);
        }
    }
    out.into_iter().map(|(_, item)| item).collect()
}
