//! A node with another model, whose answers the test gives.

use repartee::cluster::bus::{Bus as _, MemoryMember};
use repartee_cluster::{BeatMessage, MessageKind, NodeLoad, NodePhase, NodeRecord};
use repartee_gateway_testkit::PATIENCE;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::nodes::Nodes;

/// A node with the model `large/one`.
pub struct OtherNode {
    listener: TcpListener,
    _bus: MemoryMember,
}

impl OtherNode {
    /// Joins it with one free slot.
    pub async fn join(nodes: &Nodes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let bus = publish(nodes, record(&address)).await;
        nodes.wait(0, 2).await;
        Self { listener, _bus: bus }
    }

    /// Takes a connection.
    pub async fn accept(&self) -> BufReader<TcpStream> {
        let accepted = timeout(PATIENCE, self.listener.accept()).await.expect("a connection");
        BufReader::new(accepted.unwrap().0)
    }

    /// Answers a request on a connection of its own.
    pub async fn answer(&self, head: &str) {
        let mut connection = self.accept().await;
        read_head(&mut connection, head).await;
        answer(&mut connection, "connection: close\r\n").await;
        // The rest of the request, until the node has its answer.
        let _ = tokio::io::copy(&mut connection, &mut tokio::io::sink()).await;
    }
}

/// Record of the node at this address.
pub fn record(address: &str) -> NodeRecord {
    NodeRecord {
        tag: "00000001".parse().unwrap(),
        name: "other".to_owned(),
        incarnation: 1,
        address: address.to_owned(),
        zone: String::new(),
        model: "large/one".to_owned(),
        version: String::new(),
        phase: NodePhase::Serving,
        load: NodeLoad { slots: 1, free: 1, first_packet_p95_ms: None },
        keys: Vec::new(),
        voices: 0,
    }
}

/// Publishes the first beat of a node; returns its membership of the bus.
async fn publish(nodes: &Nodes, record: NodeRecord) -> MemoryMember {
    let (mut bus, codec) = nodes.listen();
    bus.publish(MessageKind::Beat, codec.encode(&BeatMessage::new(MessageKind::Beat, 1, record))).await;
    bus
}

/// Reads the head of a request, which begins so.
pub async fn read_head(connection: &mut BufReader<TcpStream>, begin: &str) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = timeout(PATIENCE, connection.read_line(&mut head)).await.expect("a request").unwrap();
        assert!(read > 0, "{head}");
    }
    assert!(head.starts_with(begin), "{head}");
}

/// Answers a request with this header.
pub async fn answer(connection: &mut BufReader<TcpStream>, header: &str) {
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n{header}\r\n{{}}");
    connection.write_all(reply.as_bytes()).await.unwrap();
}
