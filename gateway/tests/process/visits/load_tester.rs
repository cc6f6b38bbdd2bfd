//! A load tester: several callers at once, each call counted; an address that strangers reach is refused.

use tokio::task::JoinSet;

use super::{Visited, ran};

const CALLERS: usize = 3;

#[tokio::test]
async fn a_load_tester_counts_calls_and_refusals() {
    let server = Visited::start(&["--set", "limits.calls_per_address=3"]).await;
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let address = server.server();
        callers.spawn(async move { ran(&["call", &address, "--text", "What is the capital of France?"]).await });
    }
    while let Some(ended) = callers.join_next().await {
        let (code, said, errors) = ended.unwrap();
        assert!(code == Some(0) && said.contains("Paris"), "{said}{errors}");
    }
    let ended = "repartee_call_seconds_count{end=\"hangup\",transport=\"websocket\"} 3\n";
    server.metrics_with(&[], &[ended, "repartee_turns_total{status=\"completed\"} 3\n"]).await;
    server.end().await;
    // Without keys nobody else's machine is answered.
    let (code, _, errors) = ran(&["serve", "--listen", "0.0.0.0:0"]).await;
    assert!(code == Some(2) && errors.contains("no keys"), "{errors}");
}
