//! The owner of a checkpoint: looks at it, quantises it, asks both, and serves the smaller one.

use super::{Visited, ran, succeeded};

const CHECKPOINT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo");

#[tokio::test]
async fn a_checkpoint_owner_quantises_and_serves() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("smaller").display().to_string();
    let described = succeeded(&["check", CHECKPOINT]).await;
    assert!(
        described.contains("served") && described.contains("yes, as ") && described.contains("memory"),
        "{described}"
    );
    let said = succeeded(&["quantize", CHECKPOINT, &out, "--weights", "int8"]).await;
    let next = said.lines().last().unwrap();
    assert_eq!(next, format!("Serve it: repartee --model {out}"));
    let question = "What is the capital of France?";
    for model in [CHECKPOINT, &out] {
        let answer = succeeded(&["ask", "--text", question, "--model", model]).await;
        assert!(answer.contains("Paris"), "{model}: {answer}");
    }
    let server = Visited::start(&["--model", &out]).await;
    let answer = succeeded(&["call", &server.server(), "--text", question]).await;
    assert!(answer.contains("Paris"), "{answer}");
    server.end().await;
    // What nobody serves is named before anything is loaded.
    let foreign = folder.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("config.json"), "{\"architectures\": [\"BertModel\"]}").unwrap();
    let (code, _, errors) = ran(&["--model", foreign.to_str().unwrap(), "--listen", "127.0.0.1:0"]).await;
    assert!(code == Some(2) && errors.contains("`BertModel`"), "{errors}");
}
