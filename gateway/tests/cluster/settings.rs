//! Settings of a node that cannot work are refused before it starts.

use repartee::cluster::ClusterMember;
use repartee::config::{Config, ConfigError, Secret};
use repartee_gateway_testkit::config;

use super::nodes::SECRET;

fn node() -> Config {
    let mut config = config();
    config.cluster.nats = vec!["nats://127.0.0.1:4222".to_owned(), "tls://nats.example".to_owned()];
    config.cluster.secret = Some(Secret::new(SECRET));
    config
}

/// Setting, and the change that makes it wrong.
type WrongSetting = (&'static str, fn(&mut Config));

#[test]
fn wrong_settings_of_a_node_are_named() {
    assert_eq!(node().check(), Ok(()));
    let wrong: [WrongSetting; 12] = [
        ("cluster.nats", |config| config.cluster.nats[0] = "127.0.0.1:4222".to_owned()),
        ("cluster.nats", |config| config.cluster.nats[0] = "nats://me:password@host".to_owned()),
        ("cluster.nats_user", |config| config.cluster.nats_user = Some("me".to_owned())),
        ("cluster.secret", |config| config.cluster.secret = None),
        ("cluster.secret", |config| config.cluster.secret = Some(Secret::new("short"))),
        ("cluster.secret", |config| config.cluster.accepted_secret = Some(Secret::new(SECRET))),
        ("cluster.name", |config| config.cluster.name = Some("a b".to_owned())),
        ("cluster.cell", |config| config.cluster.cell = "a.b".to_owned()),
        ("cluster.zone", |config| config.cluster.zone = "z".repeat(65)),
        ("cluster.advertised", |config| config.cluster.advertised = Some("10.0.0.1".to_owned())),
        ("cluster.advertised", |config| config.listen = ([0, 0, 0, 0], 8080).into()),
        ("tls", |config| config.tls.development = true),
    ];
    for (setting, change) in wrong {
        let mut config = node();
        change(&mut config);
        assert!(
            matches!(config.check(), Err(ConfigError::Value { path, .. }) if path == setting),
            "{:?}",
            config.check()
        );
    }
}

#[test]
fn a_node_without_name_gets_one() {
    let member = |config: &Config| ClusterMember::from_config(&config.cluster, ([127, 0, 0, 1], 8080).into()).unwrap();
    assert!(member(&config()).is_none(), "without NATS it is alone");
    let unnamed = member(&node()).unwrap();
    assert!(unnamed.name.ends_with("8080"), "{}", unnamed.name);
    let mut named = node();
    named.cluster.name = Some("node-1".to_owned());
    assert_eq!(member(&named).unwrap().name, "node-1");
}
