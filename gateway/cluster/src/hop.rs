//! Header of a request that one node forwards to another: which node sent it, when, for which client, signed. A node that gets
//! it serves the request or refuses it, and never forwards it again.

use core::net::IpAddr;

use thiserror::Error;

use crate::secret::{ClusterSecrets, SealError, Sealer};
use crate::tag::NodeTag;

/// Name of the header.
pub const HOP_HEADER: &str = "repartee-hop";
/// Seconds for which a header counts, before and after its time: clocks of nodes may differ.
pub const HOP_LIFETIME: u64 = 60;

/// Content of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Node that forwarded the request.
    pub from: NodeTag,
    /// Address of the client that sent it to that node.
    pub client: IpAddr,
}

/// Error of [`HopSigner::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HopError {
    /// Not a header of this form.
    #[error("the header {HOP_HEADER} is not one of a node")]
    Form,
    /// Signed wrongly, for another request, or with another secret.
    #[error("{HOP_HEADER}: {0}: the nodes of a cluster have the same cluster.secret")]
    Seal(#[from] SealError),
    /// Too old, or from the future.
    #[error("the header {HOP_HEADER} is not of this minute: set the clocks of the nodes")]
    Time,
}

/// Signs and verifies the header.
#[derive(Debug, Clone)]
pub struct HopSigner(Sealer);

impl HopSigner {
    /// Signer of a cluster.
    pub fn new(secrets: &ClusterSecrets) -> Self {
        Self(secrets.sealer("hop"))
    }

    /// Header of a request with this method, path and query, forwarded at `unix` seconds since 1970.
    pub fn sign(&self, hop: &Hop, method: &str, path: &str, unix: u64) -> String {
        let head = format!("{} {unix} {}", hop.from, hop.client);
        let seal = self.0.sign(content(&head, method, path).as_bytes());
        format!("{head} {seal}")
    }

    /// Reads the header of a request that arrives at `unix`.
    pub fn verify(&self, header: &str, method: &str, path: &str, unix: u64) -> Result<Hop, HopError> {
        let (head, seal) = header.rsplit_once(' ').ok_or(HopError::Form)?;
        let (id, signature) = seal.split_once('.').ok_or(HopError::Form)?;
        self.0.verify(id, signature, content(head, method, path).as_bytes())?;
        let mut words = head.split(' ');
        let (Some(from), Some(sent), Some(client), None) = (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(HopError::Form);
        };
        let from = from.parse().map_err(|_| HopError::Form)?;
        let client = client.parse().map_err(|_| HopError::Form)?;
        let sent: u64 = sent.parse().map_err(|_| HopError::Form)?;
        if sent.abs_diff(unix) > HOP_LIFETIME { Err(HopError::Time) } else { Ok(Hop { from, client }) }
    }
}

fn content(head: &str, method: &str, path: &str) -> String {
    format!("{head} {method} {path}")
}
