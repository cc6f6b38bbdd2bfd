//! Homes of recorded voices: the node that an id names, whichever of its runs is there.

use std::time::{Duration, Instant};

use repartee_cluster::{Departure, Liveness, MessageKind, NodeHome, Owner, TableInput};

use super::support::{beat, echoing, message, record, table, tag};

const RANDOM: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn ids_name_a_home_or_none() {
    let home = NodeHome::of_name("node-2");
    for prefix in ["voice", "cons"] {
        assert_eq!(NodeHome::of_id(&format!("{prefix}_{home}_{RANDOM}")), Some(home));
    }
    assert_ne!(home, NodeHome::of_name("node-1"));
    for other in [
        String::new(),
        format!("voice_{RANDOM}"),
        format!("voice_{home}_{RANDOM}0"),
        format!("voice_{home}_{}", RANDOM.replace('a', "A")),
        format!("voice_+{}_{RANDOM}", &home.to_string()[1..]),
        format!("rtc_{home}_{RANDOM}"),
        format!("voice_{home}_../../{RANDOM}"),
    ] {
        assert_eq!(NodeHome::of_id(&other), None, "{other}");
    }
}

#[test]
fn a_home_is_its_nodes_present_run() {
    let now = Instant::now();
    let mut table = table(now);
    let home = NodeHome::of_name("node-2");
    assert_eq!((table.home(NodeHome::of_name("node-1"), now), table.home(home, now)), (Owner::Own, Owner::Unknown));
    table.handle(TableInput::Message(&beat(1, record(2))), now);
    let mut again = record(3);
    (again.name, again.incarnation, again.voices) = ("node-2".to_owned(), record(2).incarnation + 1, 7);
    table.handle(TableInput::Message(&beat(1, again.clone())), now);
    let present = |owner| matches!(owner, Owner::Other(target, Liveness::Fresh) if target.tag == tag(3));
    assert!(present(table.home(home, now)), "the earlier run has ended");
    let sources: Vec<_> = table.voice_sources(now).into_iter().map(|source| (source.name, source.changes)).collect();
    assert_eq!(sources, [("node-2".to_owned(), 7)]);
    table.handle(TableInput::Message(&message(MessageKind::Bye, 2, again)), now);
    assert_eq!(table.home(home, now), Owner::Ended(Departure::Bye));
    assert!(table.voice_sources(now).is_empty() && table.has_name("node-2"));
}

#[test]
fn a_changed_voice_is_told_soon() {
    let start = Instant::now();
    let mut table = table(start);
    echoing(&mut table, TableInput::Tick, start);
    let soon = start + Duration::from_millis(150);
    table.handle(TableInput::Voices(0), soon);
    assert_eq!(table.next_tick(), start + Duration::from_secs(1));
    let effects = table.handle(TableInput::Voices(1), soon);
    assert_eq!(effects.len(), 1, "a beat: {effects:?}");
    assert_eq!(table.own().voices, 1);
}
