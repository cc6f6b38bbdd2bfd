//! `make bench`: the engine's techniques, each compared with its alternative in the same run, on the demo checkpoint
//! and one thread unless a row says otherwise; and each stage compared with the peak of the machine. An argument
//! selects the parts whose title contains it; the report is written only if all parts ran.
//!
//! - `bed`: an engine that is ticked by hand, so that only its own work is timed
//! - `codec`: carried state against left-context decoding
//! - `callers`: hand-off modes, threads, batches, input length, memory
//! - `floor`: stages against the physical floor
//! - `held`: texts that are held to a form
//! - `kernels`: sampling from a large vocabulary, regions of the thread pool
//! - `loops`: 64 sessions on one tick loop with all threads, and on loops of one thread
//! - `scale`: 64 sessions on one to all threads of the machine

mod bed;
mod callers;
mod codec;
mod floor;
mod held;
mod kernels;
mod loops;
mod scale;

use anyhow::Result;
use repartee_report::{Report, ReportRow};
use repartee_tests::tools;

fn main() -> Result<()> {
    let model = tools::root().join("models/demo");
    let mut rows: Vec<ReportRow> = Vec::new();
    // Cargo adds `--bench`.
    let only = std::env::args().skip(1).find(|argument| argument != "--bench");
    let mut part = |title: &str, run: &mut dyn FnMut() -> Result<Vec<ReportRow>>| -> Result<()> {
        if only.as_ref().is_some_and(|only| !title.contains(only)) {
            return Ok(());
        }
        println!("\n{title}");
        let made = run()?;
        repartee_report::print(&made);
        rows.extend(made);
        Ok(())
    };
    part("code2wav: carried state against left-context decoding", &mut || codec::rows(&model))?;
    part("hand-off: async_chunk against full_payload", &mut || callers::hand_off(&model))?;
    part("threads: stages side by side against one after another", &mut || callers::threads(&model))?;
    part("batches of 8 sessions against one after another", &mut || callers::batches(&model))?;
    part("time to first samples by length of the input", &mut || callers::input_length(&model))?;
    part("memory", &mut || callers::memory(&model))?;
    part("where an answer's time goes", &mut || callers::profile(&model))?;
    part("stages against the physical floor", &mut || floor::rows(&model))?;
    part("scale: 64 sessions on one to all threads", &mut || scale::rows(&model))?;
    part("scale by tick loops", &mut || loops::rows(&model))?;

    part("operations of the device", &mut kernels::rows)?;
    part("texts held to a form", &mut held::rows)?;

    if only.is_some() {
        return Ok(());
    }
    let path = tools::root().join("target/report/engine.json");
    Report::new("engine", rows).write(&path)?;
    println!("\n{}", path.display());
    Ok(())
}
