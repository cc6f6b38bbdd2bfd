//! Checks of the settings of a node that shares calls with others.

use std::net::SocketAddr;

use super::check::ConfigError;
use super::cluster::ClusterConfig;
#[cfg(feature = "cluster")]
use super::secret::Secret;

/// Longest name of a node, a cell or a zone, in bytes.
const MAX_NAME: usize = 64;

impl ClusterConfig {
    /// Checks the settings of a server that listens on `listen`, with or without `https`.
    pub(super) fn check(&self, listen: SocketAddr, https: bool) -> Result<(), ConfigError> {
        let refuse = |path, problem: String| Err(ConfigError::Value { path, problem });
        if !self.is_set() {
            return Ok(());
        }
        if cfg!(not(feature = "cluster")) {
            return refuse(
                "cluster.nats",
                "this binary has no clusters: build it with `--features repartee/cluster`, or leave the setting out"
                    .to_owned(),
            );
        }
        for url in &self.nats {
            let host = ["nats://", "tls://"].iter().find_map(|scheme| url.strip_prefix(scheme)).unwrap_or_default();
            if host.is_empty() || host.contains(['@', '/', ' ']) {
                let problem = format!(
                    "`{url}` is no server: write nats://host:4222 or tls://host:4222, and the login as nats_user and nats_password"
                );
                return refuse("cluster.nats", problem);
            }
        }
        if self.nats_user.is_some() != self.nats_password.is_some() {
            return refuse("cluster.nats_user", "set both nats_user and nats_password, or neither".to_owned());
        }
        self.check_secrets()?;
        let visible = |text: &str| text.len() <= MAX_NAME && text.bytes().all(|byte| byte.is_ascii_graphic());
        if self.name.as_deref().is_some_and(|name| name.is_empty() || !visible(name)) {
            return refuse("cluster.name", format!("has 1 to {MAX_NAME} visible ASCII characters"));
        }
        if !visible(&self.zone) {
            return refuse("cluster.zone", format!("has at most {MAX_NAME} visible ASCII characters"));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if self.cell.is_empty() || self.cell.len() > MAX_NAME || !self.cell.bytes().all(plain) {
            return refuse("cluster.cell", format!("has 1 to {MAX_NAME} letters, digits, - and _"));
        }
        match &self.advertised {
            Some(address) if !is_address(address) => {
                return refuse("cluster.advertised", format!("`{address}` is no address: write host:port"));
            }
            None if listen.ip().is_unspecified() => {
                return refuse(
                    "cluster.advertised",
                    format!("is needed, because listen is {listen}: set the host and port that other nodes reach"),
                );
            }
            _ => {}
        }
        if https {
            return refuse(
                "tls",
                "nodes reach each other over plain HTTP: let the proxy in front of them speak HTTPS".to_owned(),
            );
        }
        Ok(())
    }

    #[cfg(feature = "cluster")]
    fn check_secrets(&self) -> Result<(), ConfigError> {
        let Some(secret) = &self.secret else {
            let problem = "is missing: make one for all nodes with `openssl rand -hex 32`".to_owned();
            return Err(ConfigError::Value { path: "cluster.secret", problem });
        };
        let accepted = self.accepted_secret.as_ref().map(Secret::expose);
        let checked = repartee_cluster::ClusterSecrets::new(secret.expose(), accepted);
        checked.map(drop).map_err(|error| ConfigError::Value { path: "cluster.secret", problem: error.to_string() })
    }

    #[cfg(not(feature = "cluster"))]
    fn check_secrets(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}

fn is_address(text: &str) -> bool {
    let parts =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic()));
    parts.and_then(|(_, port)| port.parse::<u16>().ok()).is_some_and(|port| port > 0)
}
