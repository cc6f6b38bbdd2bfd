//! Connections between nodes: they are kept, and replaced when they are closed.

use repartee_gateway_testkit::http::{Reply, send};

use super::nodes::Nodes;
use super::other_node::{OtherNode, answer, read_head};

const HEAD: &str = "GET /v1/models/large%2Fone HTTP";

/// Sends a request that the other node answers.
async fn ask(nodes: &Nodes) -> Reply {
    send(nodes.address(0), "GET", "/v1/models/large%2Fone", &[], b"").await
}

#[tokio::test]
async fn forwards_share_a_connection() {
    let nodes = Nodes::start(&[1]).await;
    let other = OtherNode::join(&nodes).await;
    let served = async {
        let mut connection = other.accept().await;
        for _ in 0..5 {
            read_head(&mut connection, HEAD).await;
            answer(&mut connection, "").await;
        }
        connection
    };
    let asked = async {
        for _ in 0..5 {
            assert_eq!(ask(&nodes).await.status, 200);
        }
    };
    let _ = tokio::join!(served, asked);
}

#[tokio::test]
async fn closed_connections_are_opened_anew() {
    let nodes = Nodes::start(&[1]).await;
    let other = OtherNode::join(&nodes).await;
    let served = async {
        let mut connection = other.accept().await;
        read_head(&mut connection, HEAD).await;
        answer(&mut connection, "").await;
        // It closes with the next request on its way, as after a long pause.
        read_head(&mut connection, HEAD).await;
        drop(connection);
        let mut connection = other.accept().await;
        read_head(&mut connection, HEAD).await;
        // Nor does it answer on a new one: the request goes nowhere else.
        drop(connection);
    };
    let asked = async { [ask(&nodes).await.status, ask(&nodes).await.status] };
    let ((), statuses) = tokio::join!(served, asked);
    assert_eq!(statuses, [200, 503]);
}

#[tokio::test]
async fn a_closed_connection_refuses_nobody() {
    let nodes = Nodes::start(&[1]).await;
    let other = OtherNode::join(&nodes).await;
    let served = async {
        for _ in 0..3 {
            let mut connection = other.accept().await;
            read_head(&mut connection, HEAD).await;
            answer(&mut connection, "").await;
        }
    };
    let asked = async {
        for _ in 0..3 {
            assert_eq!(ask(&nodes).await.status, 200);
        }
    };
    tokio::join!(served, asked);
}
