//! Prints the crate graph, or inserts it into a page: `crate_graph [PAGE]`.

use anyhow::{Context, Result};
use repartee_tests::workspace::{Workspace, with_graph};

fn main() -> Result<()> {
    let graph = Workspace::load()?.graph();
    let Some(path) = std::env::args_os().nth(1) else {
        print!("{graph}");
        return Ok(());
    };
    let named = || path.display().to_string();
    let page = std::fs::read_to_string(&path).with_context(named)?;
    std::fs::write(&path, with_graph(&page, &graph).with_context(named)?).with_context(named)
}
