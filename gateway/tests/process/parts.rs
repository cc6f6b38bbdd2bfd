//! Parts that are compiled in.

/// Header between nodes, which only their code names.
const OF_NODES: &[u8] = b"repartee-hop";

#[test]
fn only_the_feature_brings_code_of_clusters() {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_repartee")).unwrap();
    let found = binary.windows(OF_NODES.len()).any(|bytes| bytes == OF_NODES);
    assert_eq!(found, cfg!(feature = "cluster"));
}
