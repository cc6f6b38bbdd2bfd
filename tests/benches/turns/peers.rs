//! Peers: fixed silence by Silero's voice detector, and smart-turn as Pipecat uses it. `tests/turns/peers.py` runs both on
//! the same sounds.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result, ensure};
use repartee_tests::tools;
use serde::Deserialize;

use super::set::TurnSet;

/// Name of a peer, true for fixed silence, and the ends of turns of each sound, in samples.
pub type PeerEnds = (String, bool, Vec<Vec<usize>>);

/// A peer, as the script reports it.
#[derive(Debug, Deserialize)]
struct Peer {
    name: String,
    silence: bool,
    /// Ends of turns of each sound, in samples.
    ends: Vec<Vec<usize>>,
}

/// Runs the peers on all sounds.
pub fn ends(set: &TurnSet) -> Result<Vec<PeerEnds>> {
    let folder = tools::root().join("target/turns");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let path = folder.join("sounds.f32");
    let mut file = BufWriter::new(File::create(&path).with_context(|| path.display().to_string())?);
    // Each sound is its number of samples, then the samples, little-endian.
    for sound in &set.sounds {
        file.write_all(&u32::try_from(sound.samples.len())?.to_le_bytes())?;
        for sample in &sound.samples {
            file.write_all(&sample.to_le_bytes())?;
        }
    }
    file.flush()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let output = runtime.block_on(async {
        let script = tools::root().join("tests/turns/peers.py");
        tools::clients_python()?
            .arg(script)
            .arg(&path)
            .stderr(std::process::Stdio::inherit())
            .output()
            .await
            .context("peers.py")
    })?;
    ensure!(output.status.success(), "tests/turns/peers.py failed");
    let peers: Vec<Peer> = serde_json::from_slice(&output.stdout).context("the report of peers.py")?;
    ensure!(peers.iter().all(|peer| peer.ends.len() == set.sounds.len()), "peers.py judged other sounds");
    Ok(peers.into_iter().map(|peer| (peer.name, peer.silence, peer.ends)).collect())
}
