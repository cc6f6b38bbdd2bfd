//! Models: those of other nodes are listed, and requests for them go there.

use repartee_gateway_testkit::http::{form, send};
use serde_json::json;

use super::keys::{KEY, issue};
use super::nodes::{Nodes, OFFER, SDP};
use super::other_node::OtherNode;

#[tokio::test]
async fn models_of_other_nodes_are_listed() {
    let nodes = Nodes::start(&[1]).await;
    let other = OtherNode::join(&nodes).await;
    let models = send(nodes.address(0), "GET", "/v1/models", &[], b"").await.json();
    let ids: Vec<_> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["scripted", "large/one"]);
    let asked = send(nodes.address(0), "GET", "/v1/models/large%2Fone", &[], b"");
    let (reply, ()) = tokio::join!(asked, other.answer("GET /v1/models/large%2Fone HTTP"));
    assert_eq!((reply.status, &*reply.body), (200, "{}"));
    assert_eq!(send(nodes.address(0), "GET", "/v1/models/scripted", &[], b"").await.json()["id"], "scripted");
    // Its node does not answer any more.
    drop(other);
    let reply = send(nodes.address(0), "GET", "/v1/models/large%2Fone", &[], b"").await;
    assert_eq!((reply.status, &*reply.code()), (503, "call_node_unreachable"));
}

#[tokio::test]
async fn offers_go_where_their_model_is() {
    let nodes = Nodes::keyed(&[1], KEY).await;
    let other = OtherNode::join(&nodes).await;
    let session = json!({"type": "realtime", "model": "large/one"});
    let bearer = format!("Bearer {KEY}");
    let (media, body) = form(&[("sdp", OFFER.as_bytes()), ("session", session.to_string().as_bytes())]);
    let in_form = ("content-type", &*media);
    let ephemeral = format!("Bearer {}", issue(&nodes, 0, &session).await);
    for (path, media, key, body) in [
        ("/v1/realtime/calls?model=large/one", SDP[0], &bearer, OFFER.as_bytes()),
        ("/v1/realtime/calls", in_form, &bearer, &*body),
        ("/v1/realtime/calls", SDP[0], &ephemeral, OFFER.as_bytes()),
    ] {
        let headers = [media, ("authorization", &**key)];
        let asked = send(nodes.address(0), "POST", path, &headers, body);
        let head = format!("POST {path} HTTP");
        let (reply, ()) = tokio::join!(asked, other.answer(&head));
        assert_eq!((reply.status, &*reply.body), (200, "{}"), "{path}");
    }
    // A name that nobody serves means the local model.
    let headers = [SDP[0], ("authorization", &*bearer)];
    let reply = send(nodes.address(0), "POST", "/v1/realtime/calls?model=gpt", &headers, OFFER.as_bytes()).await;
    assert_eq!(reply.status, 201, "{reply:?}");
}
